"""Routers in a simulated pool warm joining replicas and hand off the caches of leaving ones."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from pando_operator.resource.pool import WorkerPool
from pando_sim.fleet.control import FleetControl
from pando_sim.policies import vllm
from pando_sim.records import Outcome, Run, Served
from pando_sim.scaling import SCALERS
from pando_sim.scaling.scaler import scaler_of
from tests.sim.fleet.world import WORKER, by_number, fault, outage, request, run, with_worker
from tests.sim.scaling.world import START_S, pool, scaled

SHARED = 16  # blocks with which each prompt begins
HIGH = [
    request(number, number / 3, *range(SHARED), *range(start, start + 5), output=256)
    for number, start in enumerate(range(1000, 2200, 5))
]
CALM = [  # three prompts, then one after the other, for which one replica is enough
    *(request(who, 0.1 * who, *range(1000 * who, 1000 * who + 40)) for who in range(3)),
    *(request(3 + number, 6.0 + 2 * number, 7) for number in range(60)),
]


def firsts(found: Run) -> dict[str, Served]:
    """The first request of each replica that joined later."""
    first: dict[str, Served] = {}
    for one in sorted(found.served, key=lambda one: one.placed_s):
        if one.replica != "replica-0":
            first.setdefault(one.replica, one)
    return first


@cache
def joins_s() -> float:
    """When the first new replica is ready to be warmed."""
    ready_s = scaled(HIGH, pool(maxReplicas=2)).steps[0].ready_s
    assert ready_s is not None
    return ready_s


@cache
def leaves_s() -> float:
    """When the last replica but one begins to leave."""
    return scaled(CALM, pool(), replicas=3).steps[-1].at_s


def test_a_joining_replica_has_the_hottest_prefixes_before_its_first_request() -> None:
    warm, cold = scaled(HIGH, pool()), scaled(HIGH, pool(warm={"tokens": 0}))
    assert warm.steps[0].ready_s == cold.steps[0].ready_s
    newcomers, others = firsts(warm), firsts(cold)
    assert "replica-1" in newcomers.keys() & others.keys()
    assert min(one.cached_tokens for one in newcomers.values()) >= 64 * SHARED
    assert {one.cached_tokens for one in others.values()} == {0}
    # A replica that is warmed joins later.
    assert newcomers["replica-1"].placed_s > others["replica-1"].placed_s
    assert warm.steps[0].prefilled_tokens > 0
    assert {step.prefilled_tokens for step in cold.steps} == {0}


def test_no_more_is_computed_for_a_joining_replica_than_the_manifest_allows() -> None:
    budget = 64 * SHARED // 2
    found = scaled(HIGH, pool(maxReplicas=2, warm={"tokens": budget}))
    grown = [step.prefilled_tokens for step in found.steps if step.after > step.before]
    assert grown == [budget]


def test_what_only_leaving_replicas_hold_is_computed_by_staying_ones() -> None:
    late = [replace(one, number=63 + one.number, at_s=130.0 + 5 * one.number) for one in CALM[:3]]
    requests = [*CALM, *late]

    def cached(manifest: WorkerPool) -> tuple[list[int], int]:
        found = scaled(requests, manifest, replicas=3)
        assert found.steps[-1].after == 1
        assert found.steps[-1].at_s < 130.0
        tokens = [one.cached_tokens for one in by_number(found)[-3:]]
        return tokens, sum(step.prefilled_tokens for step in found.steps)

    held, prefilled = cached(pool())
    assert min(held) >= 40 * 64 - WORKER.page_size
    assert prefilled >= 2 * 40 * 64
    held, prefilled = cached(pool(drain={"handOffTokens": 0}))
    assert Counter(held)[0] == 2
    assert prefilled == 0


def test_the_same_seed_gives_the_same_records_with_several_routers() -> None:
    manifest = pool()
    spec = replace(with_worker(start_s=START_S), replicas=1, scaling="pando", sample_s=1.0)
    spec = replace(spec, router=replace(spec.router, routers=3))
    first, again = (
        run(HIGH, spec, scaler=scaler_of(SCALERS["pando"], spec, manifest)) for _ in range(2)
    )
    assert first.steps[0].prefilled_tokens > 0
    assert repr(first.served) == repr(again.served)
    assert repr(first.samples) == repr(again.samples)
    assert repr(first.steps) == repr(again.steps)


def test_the_same_seed_hands_off_to_the_same_replicas() -> None:
    early = [request(who, 0.1 * who, *range(1000 * who, 1000 * who + 40)) for who in range(5)]
    alone = [request(5 + number, 6.0 + 2 * number, 7) for number in range(60)]
    late = [replace(one, number=65 + one.number, at_s=130.0 + 5 * one.number) for one in early]

    def handed_off() -> str:
        found = scaled([*early, *alone, *late], pool(minReplicas=3), replicas=5)
        assert sum(step.prefilled_tokens for step in found.steps) > 40 * 64
        return repr(found.served)

    assert handed_off() == handed_off()


def test_a_policy_of_its_own_does_not_see_a_joining_replica_before_it_is_warm() -> None:
    def first_placed_s(manifest: WorkerPool) -> float:
        spec = replace(with_worker(start_s=START_S), replicas=1, scaling="pando", sample_s=1.0)
        scaler = scaler_of(SCALERS["pando"], spec, manifest)
        found = run(HIGH, spec, policy=vllm.VLLM.factory(spec), scaler=scaler)
        assert found.steps[0].ready_s == joins_s()
        return firsts(found)["replica-1"].placed_s

    cold_s = first_placed_s(pool(maxReplicas=2, warm={"tokens": 0}))
    assert first_placed_s(pool(maxReplicas=2)) > cold_s > joins_s()


@pytest.mark.parametrize("after_s", [0.1, 0.6, 1.2])
def test_a_replica_that_dies_while_it_is_warmed_comes_again(after_s: float) -> None:
    def die(fleet: FleetControl) -> None:
        fleet.stop("replica-1", leaves=False)

    found = scaled(HIGH, pool(maxReplicas=2), faults=[fault(joins_s() + after_s, die)])
    assert {one.outcome for one in found.served} == {Outcome.FINISHED}
    assert "replica-1" in firsts(found)


def test_without_redis_a_joining_replica_is_let_in_when_its_time_is_over() -> None:
    manifest = pool(maxReplicas=2, warm={"timeoutSeconds": 8})

    away = outage(joins_s() + 0.7, joins_s() + 20.0, empty=True)
    found = scaled(HIGH, manifest, faults=away)
    assert {one.outcome for one in found.served} == {Outcome.FINISHED}
    assert found.steps[0].prefilled_tokens == 0  # the result could not be written to Redis
    assert firsts(found)["replica-1"].placed_s >= joins_s() + 20.0  # no router knew it before


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("after_s", [2.6, 4.1, 6.0])
def test_what_is_handed_off_while_redis_goes_away_leaves_nothing_behind(
    after_s: float, *, empty: bool
) -> None:
    away = outage(leaves_s() + after_s, leaves_s() + after_s + 10.0, empty=empty)
    found = scaled(CALM, pool(), replicas=3, faults=away)
    assert {one.outcome for one in found.served} == {Outcome.FINISHED}
    assert found.samples[-1].replicas == 1


@pytest.mark.parametrize("before_s", [8.0, 6.0, 4.0])
def test_a_trace_that_ends_while_a_replica_is_warmed_ends_the_run(before_s: float) -> None:
    short = [one for one in HIGH if one.at_s < joins_s() - before_s]
    found = scaled(short, pool(maxReplicas=2))
    assert {one.outcome for one in found.served} == {Outcome.FINISHED}
    assert found.steps
