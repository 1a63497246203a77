"""The same trace in the simulator, in one process, one policy after the other."""

from pathlib import Path

from bench.sim_fidelity.measured import Answer
from bench.sim_fidelity.rules import rule_of
from pando_sim.cost.model import CostModel
from pando_sim.fleet.simulate import simulate
from pando_sim.records import Outcome
from pando_sim.spec import FleetSpec, RouterSpec, WorkerSpec
from pando_sim.traces import open_trace


async def replay(
    trace: Path, policy: str, cost: CostModel, replicas: int, router_s: float
) -> list[Answer]:
    """With the settings that the measured worker told of itself.

    Args:
        router_s: what a router adds to a request's first token, on both ways together.
    """
    facts = cost.file.worker
    assert facts is not None
    spec = FleetSpec(
        worker=WorkerSpec(
            cost_model=cost.name,
            capacity_tokens=facts.capacity_tokens,
            context_length=facts.context_length or facts.capacity_tokens,
            page_size=facts.page_size or 16,
            chunked_prefill_size=facts.chunked_prefill_size or 4096,
            max_running_requests=facts.max_running_requests or 256,
        ),
        router=RouterSpec(network_s=router_s / 2, max_outstanding=256),
        replicas=replicas,
        placement=policy,
    )
    run = await simulate(
        spec, iter(open_trace(trace)), cost=cost, rule=rule_of(policy, spec.router)
    )
    answered = sorted(run.served, key=lambda one: one.number)
    for served in answered:
        if served.outcome is not Outcome.FINISHED:
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
