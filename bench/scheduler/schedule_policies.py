"""The orders of waiting requests side by side: python -m bench.scheduler.schedule_policies DIR

One replica in virtual time, with the worker's own scheduler, cache and settings. DIR has the traces
that `LOADS` names, Mooncake's and kv-cache-tester's. Each order gets the same arrivals, all at the
replica at once: none waits at the router. In a closed loop a session's next call follows its last
answer, so there the sessions are the same. No request has a priority. Results in
docs/benchmarks/scheduler-loop.md.
"""

import asyncio
import gzip
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from pathlib import Path

import click
import msgspec
import numpy as np

from bench.simulator.placement_cells.loads import demand
from pando_sim.cost import load as load_cost
from pando_sim.fleet.simulate import simulate
from pando_sim.policies import POLICIES
from pando_sim.records import Outcome
from pando_sim.request import Request
from pando_sim.spec import FleetSpec, RouterSpec, WorkerSpec
from pando_sim.traces import Shape, open_trace, shaped
from pando_sim.traces.prompts import BlockPrompt
from pando_worker.policies.schedule import SCHEDULE_POLICIES

COST_MODEL = "h100-llama-3.1-8b-fp8"
CAPACITY = 960_083  # tokens, of that model on that GPU
CONTEXT = 131_072
ORDERS = tuple(SCHEDULE_POLICIES)
HEAD = (
    "| load | order | mean | p50 | p99 | worst | first token in 2 s | cached | requests an hour |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    file: str
    requests: Callable[[Path], Iterator[Request]]


@dataclass(frozen=True, slots=True)
class Waits:
    first_token_s: list[float]  # of each request, from its arrival
    cached: float  # share of the prompts' tokens
    seconds: float  # until the last answer ended

    def row(self) -> str:
        waits = np.array(self.first_token_s)
        p50, p99 = np.percentile(waits, [50, 99])
        numbers = (waits.mean(), p50, p99, waits.max())
        cells = [f"{number:.2f}" if number < 10 else f"{number:.0f}" for number in numbers]
        cells += [f"{np.mean(waits <= 2):.0%}", f"{self.cached:.3f}"]
        return " | ".join([*cells, f"{3600 * len(waits) / self.seconds:,.0f}"])


def mooncake(path: Path, *, take: int, share: float) -> Iterator[Request]:
    """The first `take` requests, at `share` of what the replica could do without a cache."""
    trace = open_trace(path)
    speed = demand(islice(trace, take), load_cost(COST_MODEL)).speed(share, replicas=1)
    return shaped(trace, Shape(take=take, speed=speed))


class _Call(msgspec.Struct):
    type: str
    input: int = msgspec.field(name="in", default=0)
    out: int = 0
    think_time: float | None = None
    ids: list[tuple[int, int]] = field(default_factory=list)  # first and count


class _Session(msgspec.Struct):
    block_size: int
    requests: list[_Call]


def agents(path: Path, *, sessions: int, calls: int, every_s: float) -> Iterator[Request]:
    """Sessions of a coding agent (the format of kv-cache-tester), each up to its first prompt that
    exceeds the context; a new one each `every_s`. A call follows the answer before it after the
    recorded time of tools and people, of which at most a minute counts.

    Args:
        sessions: the file's, again with other words once they are used up
        calls: the most of each session
    """
    with gzip.open(path) as file:
        recorded = [msgspec.json.decode(line, type=_Session) for line in file]
    number = 0
    for turn in range(sessions):
        session, begins = recorded[turn % len(recorded)], True
        main = (call for call in session.requests if call.type != "subagent")
        fitting = takewhile(lambda call: call.input + call.out <= CONTEXT, main)
        for call in islice(fitting, calls):
            ids = [np.arange(at, at + n, dtype=np.uint64) for at, n in call.ids]
            blocks = np.concatenate(ids) + np.uint64(turn << 32)  # sessions share nothing
            yield Request(
                number=number,
                at_s=every_s * turn,
                prompt=BlockPrompt(blocks, len(blocks) * session.block_size, session.block_size),
                output_tokens=max(1, call.out),
                session=str(turn),
                after=None if begins else number - 1,
                pause_s=0.0 if begins else min(call.think_time or 0.0, 60.0),
            )
            number, begins = number + 1, False


CONVERSATIONS, AGENTS = "mooncake_conversation.jsonl.gz", "agent_sessions.jsonl.gz"
LOADS = (
    Load("conversations, 80 %", CONVERSATIONS, partial(mooncake, take=1500, share=0.8)),
    Load("conversations, 120 %", CONVERSATIONS, partial(mooncake, take=1500, share=1.2)),
    Load("20 agents", AGENTS, partial(agents, sessions=20, calls=20, every_s=1)),
    Load("100 agents", AGENTS, partial(agents, sessions=100, calls=8, every_s=1)),
    Load("200 agents", AGENTS, partial(agents, sessions=200, calls=8, every_s=1)),
)


def play(load: Load, order: str, folder: Path) -> Waits:
    spec = FleetSpec(
        worker=WorkerSpec(
            cost_model=COST_MODEL,
            capacity_tokens=CAPACITY,
            context_length=CONTEXT,
            engine={"schedule_policy": order, "max_queued_requests": 100_000},
        ),
        router=RouterSpec(max_outstanding=0),
        replicas=1,
        policy="round_robin",
    )
    run = asyncio.run(
        simulate(
            spec,
            load.requests(folder / load.file),
            cost=load_cost(COST_MODEL),
            policy=POLICIES[spec.policy].factory(spec),
        )
    )
    lost = sum(one.outcome is not Outcome.FINISHED for one in run.served)
    assert not lost, f"{lost} requests of {load.name} did not finish"
    return Waits(
        [one.ttft_s for one in run.served],
        sum(one.cached_tokens for one in run.served) / sum(one.prompt_tokens for one in run.served),
        max(one.end_s for one in run.served),
    )


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", default="", help="loads whose name has this in it")
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True)
def main(folder: Path, only: str, jobs: int) -> None:
    """Play each load once with each order, on one simulated replica."""
    click.echo(HEAD)
    cells = [(load, order) for load in LOADS if only in load.name for order in ORDERS]
    with ProcessPoolExecutor(jobs) as pool:
        runs = [(load, order, pool.submit(play, load, order, folder)) for load, order in cells]
        for load, order, waits in runs:
            click.echo(f"| {load.name} | {order} | {waits.result().row()} |")


if __name__ == "__main__":
    main()
