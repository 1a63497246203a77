"""Replays the same trace in the simulator, in one process, one policy after the other."""

from dataclasses import replace
from pathlib import Path

from bench.simulator.sim_fidelity.measured import Answer, Outcome
from pando_router.fleet_view.view import REFRESH_S
from pando_sim.cost.model import CostModel
from pando_sim.fleet.simulate import simulate
from pando_sim.policies import POLICIES
from pando_sim.records import Outcome as End
from pando_sim.spec import WORKER, FleetSpec, RouterSpec, WorkerSpec
from pando_sim.traces import open_trace
from pando_worker.heartbeats import MIN_INTERVAL_S

BEAT_S = MIN_INTERVAL_S + REFRESH_S
"""The largest age of a router's information about a busy worker."""

PHASES = 8
"""When a trace begins between two heartbeats is chance, but has a large effect, so each is played
at this many moments."""


async def replay(trace: Path, policy: str, cost: CostModel, replicas: int) -> Outcome:
    """The mean of all phases."""
    return Outcome.mean(
        [
            Outcome.of(await answers(trace, policy, cost, replicas, BEAT_S * phase / PHASES))
            for phase in range(PHASES)
        ]
    )


async def answers(
    trace: Path, policy: str, cost: CostModel, replicas: int, late_s: float = 0.0
) -> list[Answer]:
    """Uses the settings that the measured worker reported, and no network: what lies between client
    and worker was measured with it.

    Args:
        late_s: from the first heartbeat to the first request.
    """
    facts = cost.file.worker
    assert facts is not None
    spec = FleetSpec(
        worker=WorkerSpec(
            cost_model=cost.name,
            capacity_tokens=facts.capacity_tokens,
            context_length=facts.context_length or facts.capacity_tokens,
            page_size=facts.page_size or 16,
            chunked_prefill_size=facts.chunked_prefill_size or WORKER.chunked_prefill_size,
            max_running_requests=facts.max_running_requests or 256,
            beat_s=BEAT_S,
        ),
        router=RouterSpec(network_s=0.0),
        replicas=replicas,
        policy=policy,
    )
    requests = (replace(one, at_s=one.at_s + late_s) for one in open_trace(trace))
    run = await simulate(spec, requests, cost=cost, policy=POLICIES[policy].factory(spec))
    answered = sorted(run.served, key=lambda one: one.number)
    for served in answered:
        if served.outcome is not End.FINISHED:
            raise RuntimeError(f"request {served.number} ended as {served.outcome}")
    return [
        Answer(
            ttft_s=served.ttft_s,
            end_s=served.end_s - served.arrival_s,
            prompt_tokens=served.prompt_tokens,
            cached_tokens=served.cached_tokens,
            replica=served.replica,
        )
        for served in answered
    ]
