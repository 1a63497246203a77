"""A simulated pool with Pando's own operator code."""

from collections import Counter
from dataclasses import replace
from datetime import datetime
from math import ceil
from statistics import median

import pytest

from pando_sim.day_clock import DayClock
from pando_sim.fleet.control import FleetControl
from pando_sim.records import Outcome
from pando_sim.scaling.cluster import Cluster
from tests.sim.fleet.world import WORKER, Calls, by_number, fault, outage, request, run
from tests.sim.scaling.world import START_S, one_after_the_other, pool, scaled

TARGET = 0.7
OF_A_REQUEST = 60 * 64 + 256  # tokens at its end
HIGH, LOW = 8, 1  # requests at a time


def test_a_load_step_grows_the_pool_to_what_the_target_holds_and_shrinks_it_after_the_window() -> (
    None
):
    high = one_after_the_other(0, HIGH, until_s=20.0)
    low = one_after_the_other(len(high), LOW, until_s=100.0, since_s=20.0)
    found = scaled([*high, *low], pool())
    # Waiting requests count with all tokens that they will hold, running ones with most of them.
    needed = ceil(HIGH * OF_A_REQUEST / (TARGET * WORKER.capacity_tokens))
    first, *others = found.steps
    assert (first.at_s, first.before, first.after) == (0.5, 1, needed)
    assert first.ready_s == pytest.approx(0.5 + START_S)
    served = by_number(found)
    calm_s = max(one.end_s for one in served[: len(high)])
    assert [step.after for step in others] == sorted((step.after for step in others), reverse=True)
    assert others[-1].after == ceil(LOW * OF_A_REQUEST / (TARGET * WORKER.capacity_tokens))
    window_s, averaged_s = 20.0, 30.0  # of stabilization, and of the signals
    assert calm_s < others[-1].at_s < calm_s + window_s + averaged_s + 10.0
    assert {one.outcome for one in served} == {Outcome.FINISHED}
    assert found.samples[-1].replicas == 1


def test_a_schedule_holds_at_the_hours_of_the_day_that_a_run_plays() -> None:
    """Here a run of a minute: of the night, of the time from 8:59:50 on, and of the night again."""
    morning = {"cron": "0 9 * * *", "durationSeconds": 3600, "minReplicas": 4}
    begins = [datetime.fromisoformat(f"2026-11-24T{at}+00:00") for at in ("02:00", "08:59:50")]
    night_s, morning_s = (one.timestamp() for one in begins)
    clock = DayClock((0.0, 20.0, 60.0), (night_s, morning_s, night_s))
    requests = one_after_the_other(0, LOW, until_s=120.0)
    steps = scaled(requests, pool(schedules=[morning]), clock=clock).steps
    assert (steps[0].before, steps[0].after) == (1, 4)
    assert steps[0].reason.endswith("minReplicas is 4 by schedule '0 9 * * *' UTC")
    assert 30.0 <= steps[0].at_s <= 45.0, "ten seconds after the jump, at the operator's next look"
    assert steps[-1].after < 4
    assert steps[1].at_s > 60.0
    assert not scaled(requests, pool(schedules=[morning])).steps, "it is 0:00 in this run"


def test_the_same_seed_gives_the_same_records() -> None:
    requests = one_after_the_other(0, 6, until_s=12.0)
    first, again = (scaled(requests, pool(), seed=7) for _ in range(2))
    assert first.steps
    assert repr(first.steps) == repr(again.steps)
    assert repr(first.served) == repr(again.served)
    assert repr(first.samples) == repr(again.samples)


def test_nobody_is_lost_when_replicas_leave() -> None:
    high = one_after_the_other(0, 6, until_s=16.0)
    low = one_after_the_other(len(high), 2, until_s=60.0, since_s=16.0)
    found = scaled([*high, *low], pool(), replicas=6)
    assert min(step.after for step in found.steps) < 6
    served = by_number(found)
    assert Counter(one.outcome for one in served) == {Outcome.FINISHED: len(served)}
    # Leaving replicas are drained before they end, so no request is tried twice.
    assert {one.tries for one in served} == {1}


def test_a_replica_that_dies_is_started_again_by_kubernetes() -> None:
    early = one_after_the_other(0, 3, until_s=8.0)
    late = one_after_the_other(len(early), 3, until_s=20.0, since_s=14.0)
    manifest = pool(minReplicas=2, maxReplicas=2)

    def die(fleet: FleetControl) -> None:
        fleet.stop("replica-1", leaves=False)

    found = scaled([*early, *late], manifest, replicas=2, faults=[fault(4.2, die)])
    at = {sample.at_s: sample for sample in found.samples}
    assert (at[4.0].ready, at[5.0].ready, at[5.0].replicas) == (2, 1, 2)
    assert at[4.0 + START_S + 1].ready == 2
    assert not found.steps
    newcomers = {one.replica for one in found.served if one.number >= len(early)}
    assert newcomers == {"replica-1"}  # it has room and accepts them


def test_nothing_shrinks_while_redis_is_away() -> None:
    low = one_after_the_other(0, 1, until_s=120.0)

    found = scaled(low, pool(), replicas=4, faults=outage(3.0, 60.0, empty=True))
    assert all(sample.ready == 4 for sample in found.samples if sample.at_s < 60.0)
    assert found.steps
    assert all(step.at_s > 60.0 for step in found.steps)
    assert found.steps[-1].after == 1


def test_tokens_that_only_a_removed_replica_held_are_charged_to_the_step_that_removed_it() -> None:
    # 4 sessions on 4 replicas; then one continues alone, and the others return after the
    # scale-down.
    early = one_after_the_other(0, 4, until_s=2.0)
    alone = one_after_the_other(len(early), 1, until_s=140.0, since_s=6.0)
    late = [
        replace(one, number=len(early) + len(alone) + one.number, at_s=200.0 + one.number)
        for one in early
    ]
    found = scaled([*early, *alone, *late], pool(drain={"handOffTokens": 0}), replicas=4)
    served = by_number(found)
    assert found.steps[-1].after == 1
    assert found.steps[-1].at_s < 200.0
    again = [
        back.prompt_tokens - back.cached_tokens
        for before, back in zip(served[:4], served[-4:], strict=True)
        if before.replica != back.replica  # the only one left
    ]
    assert len(again) == 3
    charged = sum(step.recomputed_tokens for step in found.steps)
    assert charged == pytest.approx(sum(again), abs=3 * 64)  # whole chunks are counted


def test_a_target_of_latency_is_kept_where_pressure_alone_misses_it() -> None:
    """The pool learns from one replica how long tokens take, and asks for what the target needs."""
    starts = [2.0 * at for at in range(30)] + [60 + 0.55 * at for at in range(250)]
    load = [request(at, start_s, 1000 + at, output=256) for at, start_s in enumerate(starts)]

    def gap_s(**target: float) -> float:
        found = scaled(load, pool(target={"pressure": 0.9, **target}))
        return median(one.token_gap_s for one in by_number(found) if one.arrival_s > 120.0)

    assert gap_s() > 0.02
    assert gap_s(interTokenSeconds=0.018, percentile=50.0) <= 0.018


def test_heartbeats_say_how_long_tokens_took() -> None:
    load = one_after_the_other(0, 6, until_s=20.0)
    beats = {}

    def note(fleet: FleetControl) -> None:
        beats.update({beat.replica: beat for beat in fleet.heard()})

    served = by_number(run(load, scaler=Calls(note)))
    tokens = sum(beat.decoded_tokens_total for beat in beats.values())
    seconds = sum(beat.decode_seconds_total for beat in beats.values())
    took_s = sum(one.end_s - one.first_token_s for one in served)
    assert tokens == pytest.approx(sum(one.output_tokens - 1 for one in served), rel=0.02)
    assert seconds / tokens == pytest.approx(took_s / (255 * len(served)), rel=0.05)
    assert sum(beat.prompts_total for beat in beats.values()) == len(served)


@pytest.mark.parametrize("are_faults", [False, True])
def test_what_is_not_looked_at_has_not_changed(
    are_faults: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads of the registry and of pods that are left out would have found what is known."""
    high = one_after_the_other(0, HIGH, until_s=20.0)
    requests = [*high, *one_after_the_other(len(high), LOW, until_s=100.0, since_s=20.0)]

    def die(fleet: FleetControl) -> None:
        fleet.stop("replica-0", leaves=False)

    faults = [*outage(12.0, 19.0, empty=True), fault(19.5, die)] if are_faults else []
    found = scaled(requests, pool(), faults=faults)
    assert {step.after > step.before for step in found.steps} == {True, False}
    always = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(FleetControl, "may_withhold", always, raising=False)
    monkeypatch.setattr(Cluster, "_is_settled", property(lambda self: False))
    each_time = scaled(requests, pool(), faults=faults)
    assert repr(each_time.served) == repr(found.served)
    assert repr(each_time.samples) == repr(found.samples)
    assert repr(each_time.steps) == repr(found.steps)
