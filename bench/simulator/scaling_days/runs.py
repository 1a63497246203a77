"""Runs one contender's day on one load: its costs and its late requests."""

import asyncio
import json
from pathlib import Path

import msgspec

from bench.simulator.scaling_days.contenders import FIRST_REPLICAS, Contender
from bench.simulator.scaling_days.loads import Load, curve
from pando_sim.cost import load as load_cost
from pando_sim.fleet.simulate import simulate
from pando_sim.policies import POLICIES
from pando_sim.records import Outcome, Run
from pando_sim.report import digest, write_requests
from pando_sim.scaling import SCALERS
from pando_sim.scaling.scaler import scaler_of
from pando_sim.spec import FleetSpec, RouterSpec, WorkerSpec
from pando_sim.traces import Shape, open_trace, shaped

POLICY = "cache_aware"
SLOW_TTFT_S, SLOW_GAP_S = 2.0, 0.05
BEAT_S = 2.5
"""The interval of heartbeats; at the worker's own 0.5 s a day would take five times as long."""
SAMPLE_S = 60.0


Key = tuple[int, float, str, float, str, float]
"""Day, its hours, load, start time, scaler and its knob."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A day. Shares are of all requests, including refused ones."""

    day: int  # the seed of its load
    hours: float  # of the day
    load: str
    start_s: float  # of a replica
    scaler: str
    knob: float
    requests: int
    replica_hours: float
    violations: float  # first token after SLOW_TTFT_S, or more than SLOW_GAP_S between tokens
    late: float  # share whose first token was late or missing
    refused: int
    ttft_p50_s: float
    ttft_p99_s: float
    hit_rate: float
    most_replicas: int
    changes: int  # of the size
    wall_s: float

    @property
    def key(self) -> Key:
        return self.day, self.hours, self.load, self.start_s, self.scaler, self.knob


def run(details: Path, load: Load, contender: Contender, start_s: float, hours: float) -> Result:
    """`details` is the folder for its steps, samples and requests."""
    record = asyncio.run(_day(load, contender, start_s, hours))
    result = _result(record, load, contender, start_s, hours)
    _write_details(details, result, record)
    return result


async def _day(load: Load, contender: Contender, start_s: float, hours: float) -> Run:
    spec = FleetSpec(
        worker=WorkerSpec(
            cost_model=load.cost_model,
            capacity_tokens=load.capacity_tokens,
            chunked_prefill_size=load.chunk_tokens,
            engine=load.engine,
            start_s=start_s,
            beat_s=BEAT_S,
        ),
        router=RouterSpec(max_outstanding=load.most_requests),
        replicas=FIRST_REPLICAS,
        policy=POLICY,
        scaling=contender.scaling,
        hpa_queue_target=contender.knob,
        knative_target=contender.knob,
        sample_s=SAMPLE_S,
        slow_ttft_s=SLOW_TTFT_S,
        slow_gap_s=SLOW_GAP_S,
    )
    scaler = scaler_of(SCALERS[contender.scaling], spec, contender.pool())
    requests = shaped(open_trace(load.trace), Shape(day=curve(load, hours)))
    policy = POLICIES[POLICY].factory(spec)
    cost = load_cost(load.cost_model)
    return await simulate(spec, requests, cost=cost, policy=policy, scaler=scaler)


def _result(record: Run, load: Load, contender: Contender, start_s: float, hours: float) -> Result:
    found = digest(record, slow_ttft_s=SLOW_TTFT_S, slow_gap_s=SLOW_GAP_S, gpus_per_replica=1)
    numbers = found.statistics
    assert numbers.ttft is not None and numbers.goodput is not None  # a day has requests
    late = sum(not one.ttft_s <= SLOW_TTFT_S for one in record.served)  # also nan: there was none
    return Result(
        day=load.day,
        hours=hours,
        load=load.name,
        start_s=start_s,
        scaler=contender.scaler,
        knob=contender.knob,
        requests=numbers.requests,
        replica_hours=round(numbers.replica_hours, 3),
        violations=round(1 - numbers.goodput, 5),
        late=round(late / numbers.requests, 5),
        refused=sum(one.outcome is not Outcome.FINISHED for one in record.served),
        ttft_p50_s=round(numbers.ttft.p50, 4),
        ttft_p99_s=round(numbers.ttft.p99, 4),
        hit_rate=round(numbers.hit_rate or 0.0, 4),
        most_replicas=max(sample.replicas for sample in record.samples),
        changes=len(record.steps),
        wall_s=round(record.wall_s, 1),
    )


def _write_details(folder: Path, result: Result, record: Run) -> None:
    """Writes what explains a result: decisions with reasons, the pool each minute, each request."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = (result.load, result.day, f"{result.start_s:g}", result.scaler, f"{result.knob:g}")
    name = "-".join(map(str, parts)).replace(", ", "-")
    write_requests(folder / f"{name}.requests.csv", record)
    content = {"steps": record.steps, "samples": record.samples}
    text = json.dumps(msgspec.to_builtins(content), indent=0)
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
