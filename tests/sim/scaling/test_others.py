"""Models of other autoscalers, in cases computed by hand and in a fleet."""

from dataclasses import replace
from itertools import pairwise

import pytest

from pando_operator.resource.policy import ScalingPolicy
from pando_sim.records import Outcome
from pando_sim.scaling.cluster import Cluster
from pando_sim.scaling.dynamo_planner import Engine, PlannerController, Traffic
from pando_sim.scaling.hpa import proposed
from pando_sim.scaling.knative import KnativeController
from pando_sim.scaling.ledger import Ledger
from pando_sim.scaling.scaler import ClusterScaler
from tests.sim.fleet.world import COST, SPEC, by_number, run
from tests.sim.scaling.world import one_after_the_other, pool, scaled


@pytest.mark.parametrize(
    ("values", "pods", "target", "wanted"),
    [
        ((10.0, 10.0, 10.0), 3, 5.0, 6),  # twice the target
        ((5.4, 5.4), 2, 5.0, 2),  # within 10 %
        ((5.6, 5.6), 2, 5.0, 3),
        ((1.0, 0.0, 0.0, 1.0), 4, 5.0, 1),
        ((8.0, 8.0), 4, 5.0, 4),  # with two that start and have no load, it is below the target
        ((20.0, 20.0), 4, 5.0, 8),  # with them it is still twice the target
        ((1.0, 1.0), 4, 5.0, 3),  # two that start count as at the target: 12 of 20
    ],
)
def test_hpa_wants_what_its_calculator_computes(
    values: tuple[float, ...], pods: int, target: float, wanted: int
) -> None:
    named = {f"replica-{number}": value for number, value in enumerate(values)}
    assert proposed(named, pods, pods, target) == wanted


def test_knative_averages_panics_and_then_halves_at_most() -> None:
    knative = KnativeController(10.0, ScalingPolicy(max_replicas=100))  # 7 requests per replica
    ticks = [2.0 * tick for tick in range(1, 200)]
    load = [20] * 40 + [100] * 40 + [7] * 119
    wanted = []
    ready = 3
    for at_s, requests in zip(ticks, load, strict=True):
        wanted.append(knative.wanted(at_s, requests, ready))
        ready = wanted[-1]
    assert set(wanted[:40]) == {3}  # 20 / 7
    # After one tick of 100 the last 6 s have 140 / 3 requests, or 7 replicas: over twice the 3.
    assert wanted[40] == 7
    assert wanted[42] == 15  # 100 / 7, without waiting for the 60 s
    assert wanted[40:80] == sorted(wanted[40:80])
    calm = wanted[80:]
    assert calm[-1] == 1
    assert all(after >= before // 2 for before, after in pairwise(calm))


@pytest.mark.parametrize("scaling", ["hpa_queue", "hpa_kv", "knative"])
def test_each_grows_under_load_shrinks_without_it_and_loses_nobody(scaling: str) -> None:
    high = one_after_the_other(0, 8, until_s=10.0)
    low = one_after_the_other(len(high), 1, until_s=150.0, since_s=10.0)
    found = scaled([*high, *low], pool(), scaling=scaling)
    assert {one.outcome for one in by_number(found)} == {Outcome.FINISHED}
    sizes = [step.after for step in found.steps]
    assert max(sizes) > 1
    assert sizes[-1] < max(sizes)
    assert found.scaling == scaling


def test_dynamo_s_planner_serves_as_many_requests_as_the_largest_batch_within_the_targets() -> None:
    cost = COST
    engine = Engine(
        cost=cost, step_tokens=256, kv_tokens=16_384, most_requests=64, ttft_s=10.0, itl_s=0.0
    )
    traffic = Traffic(per_s=2.0, prompt=512.0, answer=256.0, hit_rate=0.5)

    def step_s(batch: int) -> float:
        prompts = batch  # 256 computed tokens for each answer of 256
        return cost.step_s(prompts, prompts * prompts // 2, batch, 640 * batch)

    by_room = 16_384 // 640
    for itl_s, batch in (((step_s(7) + step_s(8)) / 2, 7), (1.0, by_room)):
        found = replace(engine, itl_s=itl_s).requests_per_s(traffic)
        assert found == pytest.approx(batch / (256 * step_s(batch)))
    assert engine.requests_per_s(traffic) == pytest.approx(1 / (256 * step_s(1))), "unreachable"


def test_dynamo_s_planner_follows_the_requests_of_the_last_three_minutes() -> None:
    engine = Engine(
        cost=COST, step_tokens=256, kv_tokens=16_384, most_requests=16, ttft_s=1.0, itl_s=0.016
    )
    load = one_after_the_other(0, 8, until_s=400.0, blocks=1)
    scaler = ClusterScaler(
        PlannerController(engine, ScalingPolicy(max_replicas=6)),
        Cluster(grace_s=300.0, gated=False),
        Ledger(1.0),
        sets_marks=False,
    )
    found = run(load, replace(SPEC, replicas=1), scaler=scaler)
    assert {one.outcome for one in by_number(found)} == {Outcome.FINISHED}
    first = found.steps[0]
    assert 180 <= first.at_s < 186
    assert first.after > 1
    assert all(one.at_s % 180 < 6 for one in found.steps)
