"""A run ends early only where it could not have become any good."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from pando_operator.resource.parse import parse
from pando_sim.request import Request
from pando_sim.spec import FleetSpec, WorkerSpec
from pando_sim.traces.prompts import UniquePrompt
from pando_sim.tuning.excerpt import Excerpt, all_of
from pando_sim.tuning.goal import Goal
from pando_sim.tuning.score import Score
from pando_sim.tuning.variations import (
    AS_RECORDED,
    VARIATIONS,
    Variation,
    busiest_s,
    faults,
    varied_spec,
)
from pando_sim.tuning.watch import NO_BOUNDS, Bounds, run
from tests.sim.tuning.manifests import document

GOAL = Goal(ttft_s=1.5, gap_s=0.05)
SPEC = FleetSpec(
    worker=WorkerSpec(
        cost_model="h200-llama-3.3-70b-fp8",
        capacity_tokens=40_000,
        start_s=5.0,
        beat_s=1.0,
        engine={"radix_cache": False},
    ),
    replicas=1,
    scaling="pando",
    sample_s=10.0,
)
POOL = parse(document(maxReplicas=4))


def load(every_s: float = 0.6, count: int = 300) -> list[Request]:
    """Prompts of which one replica cannot compute as many as come in the middle third."""
    found, at_s = [], 0.0
    for number in range(count):
        at_s += every_s / 3 if count // 3 <= number < 2 * count // 3 else every_s
        prompt = UniquePrompt(number, 4000)
        found.append(Request(number=number, at_s=at_s, prompt=prompt, output_tokens=30))
    return found


def outcome(bounds: Bounds = NO_BOUNDS, variation: Variation = AS_RECORDED) -> Score:
    return asyncio.run(run(SPEC, POOL, all_of(load()), GOAL, bounds=bounds, variation=variation))


@pytest.fixture(scope="module")
def whole() -> Score:
    found = outcome()
    assert found.is_whole
    assert found.requests == 300
    assert 0.0 < found.missed < 1.0
    return found


def test_a_run_that_another_one_beats_by_now_is_lost(whole: Score) -> None:
    better = (whole.gpu_hours * 0.5, whole.missed * 0.5)
    lost = outcome(Bounds(front=(better,)))
    assert lost.ended_at is not None
    assert lost.ended_at < 0.95
    assert not lost.is_whole
    assert lost.wall_s > 0.0, "it took some time, too"


def test_a_run_that_no_other_one_beats_is_played_to_its_end(whole: Score) -> None:
    """Neither those that cost more, nor those that miss more, end it."""
    dearer = [(whole.gpu_hours * 1.01, whole.missed * share) for share in (0.0, 0.5, 1.0)]
    worse = [(whole.gpu_hours * share, whole.missed + 0.002) for share in (0.0, 0.5, 1.0)]
    same = outcome(Bounds(front=(*dearer, *worse), most_missed=whole.missed))
    assert timeless(same) == timeless(whole)


def test_a_run_with_too_many_misses_is_lost(whole: Score) -> None:
    lost = outcome(Bounds(most_missed=whole.missed / 2))
    assert lost.ended_at is not None
    assert lost.ended_at < 1.0


def test_a_run_that_costs_too_much_is_lost(whole: Score) -> None:
    lost = outcome(Bounds(most_hours=whole.gpu_hours / 2))
    assert lost.ended_at is not None
    assert lost.ended_at < 1.0
    assert timeless(outcome(Bounds(most_hours=whole.gpu_hours * 1.01))) == timeless(whole)


def test_a_lost_run_says_at_least_why_it_is_lost(whole: Score) -> None:
    dear = outcome(Bounds(most_hours=whole.gpu_hours * 0.8))
    assert whole.gpu_hours * 0.8 < dear.gpu_hours < whole.gpu_hours * 1.2
    late = outcome(Bounds(most_missed=whole.missed / 2))
    assert whole.missed / 2 < late.missed < whole.missed
    assert late.late <= whole.late


def test_variations_make_it_harder_or_easier() -> None:
    """With one replica, so that no decision makes up for it."""
    up, down, slow, loss = VARIATIONS
    only = parse(document(maxReplicas=1))

    def played(variation: Variation) -> Score:
        return asyncio.run(run(SPEC, only, all_of(load()), GOAL, variation=variation))

    plain = played(AS_RECORDED)
    more, fewer = played(up), played(down)
    assert more.late > plain.late > fewer.late
    assert more.hours == pytest.approx(plain.hours / 1.2)
    assert timeless(played(loss)) != timeless(plain)
    assert varied_spec(SPEC, slow).worker.start_s == 2 * SPEC.worker.start_s


def test_a_replica_is_lost_in_the_busiest_minute() -> None:
    loses = next(one for one in VARIATIONS if one.loses_replica)
    (fault,) = faults(load(), loses)
    first, last = (load()[number].at_s for number in (100, 199))
    assert first - 60 <= fault.at_s <= last + 60
    assert fault.at_s == busiest_s(load())


def timeless(one: Score) -> Score:
    return msgspec.structs.replace(one, wall_s=0.0)


def test_the_goal_is_counted_by_request(whole: Score) -> None:
    strict = asyncio.run(run(SPEC, POOL, all_of(load()), replace(GOAL, ttft_s=1e-6)))
    assert strict.late == strict.missed == 1.0
    kind = asyncio.run(run(SPEC, POOL, all_of(load()), Goal(ttft_s=1e6, gap_s=1e6)))
    assert kind.late == kind.slow == kind.missed == kind.unanswered == 0.0
    assert kind.gpu_hours == whole.gpu_hours, "the goal changes no decision"


def test_a_stretch_counts_by_its_weight(whole: Score) -> None:
    """Requests come in thirds; the first has most of the misses, until the pool has grown."""
    requests = load()
    first_s, second_s = requests[99].at_s, requests[199].at_s
    edges_s = (0.0, first_s, second_s, requests[-1].at_s)

    def played(*weights: float, bounds: Bounds = NO_BOUNDS) -> Score:
        some = Excerpt(requests, edges_s, weights, edges_s[:-1])
        return asyncio.run(run(SPEC, POOL, some, GOAL, bounds=bounds))

    assert timeless(played(1.0, 1.0, 1.0)) == timeless(whole)
    doubled = played(2.0, 2.0, 2.0)
    assert doubled.gpu_hours == pytest.approx(2 * whole.gpu_hours, rel=1e-3)
    assert doubled.missed == pytest.approx(whole.missed)
    assert doubled.gpu_hours_a_week == pytest.approx(whole.gpu_hours_a_week, rel=1e-3)
    parts = [played(*weights) for weights in ((1.0, 0, 0), (0, 1.0, 0), (0, 0, 1.0))]
    assert sum(one.gpu_hours for one in parts) == pytest.approx(whole.gpu_hours, abs=3e-4)
    assert parts[0].missed > whole.missed > parts[2].missed
    weighed = played(1.0, 9.0, 9.0)
    assert weighed.missed < whole.missed
    kept = played(1.0, 9.0, 9.0, bounds=Bounds(most_missed=weighed.missed))
    assert timeless(kept) == timeless(weighed)
    lost = played(1.0, 9.0, 9.0, bounds=Bounds(most_missed=weighed.missed / 2))
    assert lost.ended_at is not None
    assert lost.ended_at < 1.0
