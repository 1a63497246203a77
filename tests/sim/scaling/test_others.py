"""Models of other autoscalers, in cases computed by hand and in a fleet."""

from itertools import pairwise

import pytest

from pando_operator.resource.policy import ScalingPolicy
from pando_sim.records import Outcome
from pando_sim.scaling.hpa import proposed
from pando_sim.scaling.knative import KnativeController
from tests.sim.fleet.world import by_number
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
