"""Decisions and the exact words of their reasons."""

from dataclasses import replace
from typing import Any

import pytest

from pando_fleet.records.queues import Queued
from pando_operator.resource.policy import (
    START_LIMIT_S,
    Behavior,
    PolicyType,
    RatePolicy,
    ScaleUp,
    ScalingPolicy,
    SelectPolicy,
    Target,
)
from pando_operator.scaling import Decision, Direction, History, Limit, Signals, Snapshot, decide
from pando_operator.scaling.proposals.idle import IDLE
from pando_operator.scaling.proposals.pressure import GROWTH
from pando_operator.scaling.proposals.waits import QUEUE_WAIT
from tests.operator.scaling.pool_model import (
    AT_ONCE,
    CAPACITY,
    NOBODY,
    NOW,
    changed,
    load,
    pool,
    settled,
)

POLICY = ScalingPolicy(max_replicas=10)
NO_GROWTH = Behavior(scale_up=ScaleUp(select_policy=SelectPolicy.DISABLED))


def _history(*sizes: tuple[float, int]) -> History:
    """A history of recommendations, each some seconds ago."""
    history = History(capacity_tokens=CAPACITY)
    for ago_s, replicas in sizes:
        history = history.recommended(NOW - ago_s, replicas)
    return history


@pytest.mark.parametrize(
    ("snapshot", "policy", "desired", "limited_by", "reason"),
    [
        (
            pool(0.91, 0.91, 0.91),
            POLICY,
            4,
            None,
            "pressure 0.91 over target 0.70 on 3 ready replicas: wants 4",
        ),
        (
            pool(0.75, 0.75),
            POLICY,
            2,
            None,
            "pressure 0.75 close to target 0.70 on 2 ready replicas: wants 2",
        ),
        (
            pool(1.5, coming=2),
            POLICY,
            3,
            None,
            "pressure 1.50 over target 0.70 on 1 ready replica (2 more coming): wants 3",
        ),
        (
            pool(3.0, 3.0),
            POLICY,
            6,
            Limit.RATE,
            "pressure 3.00 over target 0.70 on 2 ready replicas: wants 9;"
            " scaleUp allows 6 now (100 % in 15 s or 4 in 15 s)",
        ),
        (
            pool(3.0, 3.0),
            changed(POLICY, max_replicas=5),
            5,
            Limit.MAX_REPLICAS,
            "pressure 3.00 over target 0.70 on 2 ready replicas: wants 9;"
            " scaleUp allows 6 now (100 % in 15 s or 4 in 15 s); maxReplicas is 5",
        ),
        (
            pool(0.2, 0.2, 0.2, history=_history((200.0, 3))),
            POLICY,
            3,
            Limit.STABILIZATION,
            "pressure 0.20 under target 0.70 on 3 ready replicas: wants 1;"
            " highest recommendation of the last 300 s was 3",
        ),
        (
            pool(0.2, 0.2, 0.2, history=_history((301.0, 3))),
            POLICY,
            1,
            None,
            "pressure 0.20 under target 0.70 on 3 ready replicas: wants 1",
        ),
        (
            pool(0.0, 0.0),
            changed(POLICY, min_replicas=2),
            2,
            Limit.STABILIZATION,
            "pressure 0.00 under target 0.70 on 2 ready replicas: wants 1;"
            " highest recommendation of the last 300 s was 2",
        ),
        (
            pool(0.1),
            changed(POLICY, min_replicas=3),
            3,
            Limit.MIN_REPLICAS,
            "pressure 0.10 under target 0.70 on 1 ready replica: wants 1; minReplicas is 3",
        ),
        (
            replace(pool(0.1, 0.1), signals=None),
            POLICY,
            2,
            None,
            "no signals: Redis is unreachable: nothing changes",
        ),
        (
            pool(0.1, 0.1, age_s=9.0),
            POLICY,
            2,
            None,
            "no fresh signals from 2 of 2 ready replicas, the oldest signals are 9 s old:"
            " nothing changes",
        ),
        (
            replace(pool(0.1, 0.1), ready=3, current=3),
            changed(POLICY, behavior=AT_ONCE),
            3,
            Limit.SIGNALS,
            "pressure 0.10 under target 0.70 on 3 ready replicas: wants 1;"
            " no fresh signals from 1 of 3 ready replicas, so nothing shrinks",
        ),
        (
            replace(pool(0.1, 0.1), ready=3, current=3),
            changed(POLICY, behavior=AT_ONCE, max_replicas=2),
            3,
            Limit.SIGNALS,
            "pressure 0.10 under target 0.70 on 3 ready replicas: wants 1;"
            " no fresh signals from 1 of 3 ready replicas, so nothing shrinks",
        ),
        (
            replace(pool(2.0, 2.0), ready=3, current=3),
            POLICY,
            6,
            None,
            "pressure 2.00 over target 0.70 on 3 ready replicas: wants 6",
        ),
        (
            pool(2.0),
            changed(POLICY, behavior=NO_GROWTH),
            1,
            Limit.DISABLED,
            "pressure 2.00 over target 0.70 on 1 ready replica: wants 3;"
            " scaleUp allows 1 now (no change)",
        ),
        (
            pool(coming=1, queued=Queued(3, waited_ms=2_000, tokens=300_000)),
            POLICY,
            5,
            None,
            "300000 tokens wait, a replica holds 70000: wants 5",
        ),
        (
            pool(history=History()),
            changed(POLICY, min_replicas=0, idle_seconds=60),
            0,
            None,
            "asleep: no request waits",
        ),
        (
            pool(history=History(), queued=Queued(1, waited_ms=400, tokens=0)),
            changed(POLICY, min_replicas=0, idle_seconds=60),
            1,
            None,
            "1 request waiting for 0.4 s wake the pool",
        ),
        (
            pool(coming=2, history=History()),
            POLICY,
            2,
            None,
            "no replica is ready: nothing changes",
        ),
    ],
)
def test_a_decision_says_why(
    snapshot: Snapshot, policy: ScalingPolicy, desired: int, limited_by: Limit | None, reason: str
) -> None:
    decision = decide(snapshot, policy, NOW)
    assert (decision.desired, decision.limited_by, decision.reason) == (
        desired,
        limited_by,
        reason,
    )


def test_waiting_prompts_and_expected_outputs_are_pressure_and_cached_tokens_are_not() -> None:
    loads = (load("a", 30_000, prompt=20_000, output=10_000, cached_tokens=70_000),)
    snapshot = replace(pool(0.0), signals=replace(pool().signals, replicas=loads))  # type: ignore[type-var]
    assert decide(snapshot, POLICY, NOW).pressure == pytest.approx(0.6)
    queued = Queued(1, waited_ms=1_000, tokens=20_000)
    snapshot = replace(snapshot, signals=replace(snapshot.signals, queued=queued))  # type: ignore[type-var]
    assert decide(snapshot, POLICY, NOW).pressure == pytest.approx(0.8)


def test_after_a_restart_the_current_size_is_the_first_recommendation() -> None:
    first = decide(pool(0.1, 0.1, 0.1, history=History()), POLICY, NOW)
    assert (first.desired, first.limited_by) == (3, Limit.STABILIZATION)
    later = replace(pool(0.1, 0.1, 0.1), history=first.history)
    assert decide(later, POLICY, NOW + 299).desired == 3
    assert decide(later, POLICY, NOW + 301).desired == 1


def test_an_outage_of_the_signals_restarts_the_stabilization() -> None:
    history = settled(pool(0.7, 0.7, 0.7), POLICY).history
    away = decide(
        Snapshot(current=3, ready=3, signals=None, start_s=None, history=history), POLICY, NOW + 900
    )
    assert (away.desired, away.proposals) == (3, ())
    after = decide(pool(0.1, 0.1, 0.1, history=away.history), POLICY, NOW + 901)
    assert (after.desired, after.limited_by) == (3, Limit.STABILIZATION)


def test_the_rest_may_be_exactly_at_the_target() -> None:
    decision = decide(pool(0.35, 0.35), changed(POLICY, behavior=AT_ONCE), NOW)
    assert (decision.desired, decision.limited_by) == (1, None)


def test_a_peak_of_the_stable_window_keeps_the_replicas_that_it_needed() -> None:
    policy = changed(POLICY, behavior=AT_ONCE)
    peak = decide(pool(0.6, 0.6, 0.6), policy, NOW)
    calm = decide(pool(0.1, 0.1, 0.1, history=peak.history), policy, NOW + 20)
    assert (calm.wanted, calm.desired, calm.limited_by) == (1, 3, Limit.N_MINUS_1)
    assert "over the target with 180000 tokens of demand" in calm.reason


class TestQueueWait:
    policy = changed(POLICY, target=Target(queue_wait_seconds=5.0), window_seconds=10)

    def _after(self, *waits_s: float, coming: int = 0) -> tuple[int, str | None]:
        history = History(capacity_tokens=CAPACITY)
        for i, wait_s in enumerate(waits_s):
            queued = Queued(1, waited_ms=round(1000 * wait_s), tokens=0)
            snapshot = pool(0.3, 0.3, queued=queued, coming=coming, history=history)
            decision = decide(snapshot, self.policy, NOW + 5 * i)
            history = decision.history
        return decision.desired, decision.by

    def test_a_wait_over_the_target_grows_the_pool_by_its_ratio(self) -> None:
        assert self._after(7.0, 7.0, 7.0) == (3, QUEUE_WAIT)

    def test_a_long_wait_doubles_it_at_most(self) -> None:
        assert self._after(60.0, 60.0, 60.0) == (4, QUEUE_WAIT)

    def test_what_is_coming_is_awaited(self) -> None:
        assert self._after(60.0, 60.0, 60.0, coming=1) == (3, QUEUE_WAIT)

    def test_a_queue_that_gets_shorter_needs_nobody(self) -> None:
        assert self._after(60.0, 40.0, 20.0) == (2, QUEUE_WAIT)

    def test_prompts_that_wait_in_replicas_count_by_the_prefill_rate(self) -> None:
        loads = tuple(load(name, 10_000, prompt=90_000) for name in "ab")  # 9 s each
        snapshot = replace(pool(0.1, 0.1), signals=replace(pool().signals, replicas=loads))  # type: ignore[type-var]
        proposals = {p.by: p.reason for p in decide(snapshot, self.policy, NOW).proposals}
        assert proposals[QUEUE_WAIT].startswith("requests wait 9.0 s, target 5 s")

    def _with(self, **beat: Any) -> Decision:
        """Short prompts wait in a replica with few places, which a request holds for 20 s."""
        history = History(capacity_tokens=CAPACITY)
        for step in range(3):
            snapshot = pool(0.1, history=history, release_tokens_per_s=500.0, **beat)
            decision = decide(snapshot, self.policy, NOW + 5 * step)
            history = decision.history
        return decision

    def test_short_prompts_that_wait_for_a_place_count_by_the_rate_at_which_requests_end(
        self,
    ) -> None:
        decision = self._with(running=4, waiting=20, waiting_tokens=200)  # a request ends in 5 s
        assert (decision.desired, decision.by) == (2, QUEUE_WAIT)
        assert decision.reason.startswith("requests wait 100.0 s, target 5 s")

    def test_a_request_that_has_just_come_to_long_ones_waits_for_no_place(self) -> None:
        decision = self._with(running=1, waiting=0)
        assert decision.desired == 1
        came = pool(0.1, history=decision.history, release_tokens_per_s=500.0, running=1, waiting=1)
        assert decide(came, self.policy, NOW + 15).desired == 1


class TestHotEvictions:
    policy = changed(POLICY, target=Target(hot_evictions_per_second=100.0), behavior=AT_ONCE)

    def _run(self, rate: float, seconds: int, history: History, start: int, size: int) -> History:
        self.sizes = []
        for at in range(start, start + seconds, 5):
            snapshot = pool(
                *[1.2 / size] * size, history=history, hot_evicted_tokens_total=int(rate * at)
            )
            decision = decide(snapshot, self.policy, NOW + at)
            self.sizes.append(decision.desired)
            self.last, history = decision, decision.history
            if decision.desired != size:
                history = history.scaled(NOW + at, size, decision.desired, decision.by)
                size = decision.desired
        return history

    def test_they_add_one_replica_and_look_what_it_does(self) -> None:
        self._run(500.0, 60, History(), 0, 2)
        assert self.sizes[0] == 2
        grown = [b for a, b in zip(self.sizes, self.sizes[1:], strict=False) if b > a]
        assert grown == [3, 4], "one in each stable window"

    def test_a_size_that_was_too_small_is_not_gone_back_to_for_an_hour(self) -> None:
        history = self._run(500.0, 25, History(), 0, 2)
        assert self.sizes[-1] == 3
        history = self._run(0.0, 600, history, 30, 3)
        assert set(self.sizes) == {3}
        assert "too many" in self.last.reason
        self._run(0.0, 100, history, 3_700, 3)
        assert self.sizes[-1] == 2

    def test_a_replica_that_restarts_its_counts_has_evicted_nothing(self) -> None:
        before = self._run(500.0, 10, History(), 0, 2)
        after = self._run(0.0, 5, before, 10, 2)
        assert before.samples[-1].hot_evicted_tokens == 2 * 500 * 5
        assert after.samples[-1].hot_evicted_tokens == before.samples[-1].hot_evicted_tokens


def test_a_pool_sleeps_after_idle_seconds_whatever_the_windows() -> None:
    policy = changed(POLICY, min_replicas=0, idle_seconds=60)
    history = decide(pool(0.1, 0.1), policy, NOW).history
    for at in range(5, 60, 5):
        decision = decide(pool(0.0, 0.0, history=history), policy, NOW + at)
        assert decision.desired == 2
        history = decision.history
    asleep = decide(pool(0.0, 0.0, history=history), policy, NOW + 60)
    assert (asleep.desired, asleep.by, asleep.direction) == (0, IDLE, Direction.DOWN)
    assert asleep.reason == "no request for 60 s, idleSeconds 60: wants 0"


def test_an_idle_pool_does_not_sleep_while_its_first_replica_starts_up_to_a_limit() -> None:
    policy = changed(POLICY, min_replicas=0, idle_seconds=60)
    history = decide(pool(0.0), policy, NOW).history
    starting = decide(pool(coming=2, history=history), policy, NOW + 60)
    assert starting.desired == 2
    last_s = NOW + 60 + START_LIMIT_S
    later = decide(pool(coming=2, history=starting.history), policy, last_s - 1)
    assert later.desired == 2
    given_up = decide(pool(coming=2, history=later.history), policy, last_s + 60)
    assert given_up.desired == 0
    assert f"no replica was ready in {START_LIMIT_S + 60} s" in given_up.reason


def test_a_model_that_loads_for_longer_than_idle_seconds_comes_back_from_zero() -> None:
    """A request every 14 minutes, whose client waits two minutes; a start takes ten."""
    policy = changed(POLICY, min_replicas=0, idle_seconds=300)
    history, began_s, size, served = History(capacity_tokens=CAPACITY), 0, 0, 0
    for second in range(0, 12 * 840, 5):
        is_ready = size == 1 and second - began_s >= 600
        waits = second % 840 < 120 and not is_ready
        runs = is_ready and second % 840 < 5
        snapshot = Snapshot(
            current=size,
            ready=int(is_ready),
            signals=Signals(
                (load("r", 1_000 if runs else 0),) if is_ready else (),
                Queued(1, 1_000 * (second % 840), 500) if waits else NOBODY,
            ),
            start_s=None,
            history=history,
        )
        decision = decide(snapshot, policy, NOW + second)
        history = decision.history
        if decision.desired and not size:
            began_s = second
        size = decision.desired
        served += runs
    assert served == 6, "every other request finds it ready"


def test_a_replica_that_was_silent_for_minutes_counts_as_full_and_stops_nothing_else() -> None:
    policy = changed(POLICY, behavior=AT_ONCE)
    briefly = replace(pool(0.1, 0.1, 0.1), ready=4, current=4)
    assert decide(briefly, policy, NOW).desired == 4
    decision = decide(replace(briefly, silent=1), policy, NOW)
    assert (decision.desired, decision.signals_ok) == (2, True)
    assert decision.reason.endswith("wants 1; 1 silent replica counts as full")
    busy = replace(pool(1.0, 1.0), ready=3, current=3, silent=1)
    assert decide(busy, policy, NOW).desired == 3, "it asks for no other, and is no room either"
    sleepy = changed(policy, min_replicas=0, idle_seconds=60)
    history = decide(pool(0.0), sleepy, NOW).history
    asleep = replace(pool(0.0, history=history), ready=2, current=2, silent=1)
    assert decide(asleep, sleepy, NOW + 60).desired == 0
    alone = replace(pool(history=history), ready=1, current=1, silent=1)
    assert decide(alone, sleepy, NOW + 60).desired == 0


def test_the_rest_must_hold_the_demand_in_the_room_that_can_be_filled() -> None:
    """Waves need four replicas of which a fifth of the memory can be filled."""
    history = replace(History(capacity_tokens=CAPACITY), usable_share=0.2)
    policy = changed(POLICY, behavior=AT_ONCE, window_seconds=30)
    wave = decide(pool(*[0.14] * 4, history=history), policy, NOW)
    assert wave.desired == 4
    quiet = decide(pool(*[0.0] * 4, history=wave.history), policy, NOW + 15)
    assert quiet.wanted < 4
    assert (quiet.desired, quiet.limited_by) == (4, Limit.N_MINUS_1)


def test_late_replicas_stop_no_growth() -> None:
    policy = changed(POLICY, target=Target(queue_wait_seconds=2.0))
    waiting = Queued(5, waited_ms=9_000, tokens=100)
    on_its_way = pool(0.3, coming=1, queued=waiting)
    assert decide(on_its_way, policy, NOW).desired == 2
    decision = decide(replace(on_its_way, late=1), policy, NOW)
    assert (decision.desired, decision.by) == (4, QUEUE_WAIT)


def test_what_was_demanded_within_the_window_keeps_no_idle_pool_awake() -> None:
    policy = changed(POLICY, min_replicas=0, idle_seconds=10, window_seconds=60)
    history = decide(pool(0.5), policy, NOW).history
    asleep = decide(pool(0.0, history=history), policy, NOW + 10)
    assert (asleep.desired, asleep.reason) == (0, "no request for 10 s, idleSeconds 10: wants 0")


def test_a_sleeping_pool_says_the_same_at_each_look() -> None:
    policy = changed(POLICY, min_replicas=0, idle_seconds=60)
    history = decide(pool(0.0), policy, NOW).history
    looks = [decide(pool(history=history), policy, NOW + at) for at in (100, 200, 3000)]
    assert {look.desired for look in looks} == {0}
    assert len({look.reason for look in looks}) == 1, "each new reason is a write of the status"


def test_short_requests_between_two_looks_keep_a_pool_awake() -> None:
    policy = changed(POLICY, min_replicas=0, idle_seconds=60)
    history = decide(pool(0.0), policy, NOW).history
    for at in (30, 60, 90, 120):
        snapshot = pool(0.0, history=history, prompt_tokens_total=100 * at)
        decision = decide(snapshot, policy, NOW + at)
        assert decision.desired == 1
        history = decision.history


@pytest.mark.parametrize("every_s", [5, 15])
def test_a_rise_is_growth_however_often_a_noisy_pool_is_looked_at(every_s: int) -> None:
    """From 0.2 to 0.6 within a start time, each look off by 0.1: looks overlap, means do not."""
    history, asked = History(capacity_tokens=CAPACITY), set()
    for look in range(400 // every_s):
        at_s = look * every_s
        pressure = 0.2 + 0.4 * min(1.0, at_s / 300) + (0.1 if look % 2 else -0.1)
        snapshot = pool(pressure, start_s=300.0, history=history)
        decision = decide(snapshot, POLICY, NOW + at_s)
        asked |= {proposal.by for proposal in decision.proposals}
        history = decision.history
    assert GROWTH in asked


SHORT_ANSWERS = Queued(12, waited_ms=1_000, tokens=12 * 300)
"""Tokens that routers expect of twelve requests; running ones hold 5,000 tokens each."""


def test_replicas_that_are_full_of_requests_show_the_usable_room() -> None:
    """Regardless of the expected answers of waiting requests."""
    full = pool(0.6, running=12, queued=SHORT_ANSWERS)
    assert settled(full, POLICY).history.usable_share == pytest.approx(0.6)
    half = pool(0.6, running=30, queued=SHORT_ANSWERS)
    assert settled(half, POLICY).history.usable_share == 1.0, "fewer wait than run"


def test_replicas_in_which_nothing_runs_say_nothing_about_usable_room() -> None:
    """A replica whose engine has stalled holds nothing, although it could."""
    still = settled(pool(0.0, 0.0, prompt=5_000, queued=SHORT_ANSWERS), POLICY)
    assert still.history.usable_share == 1.0
    assert still.desired < POLICY.most_replicas


def test_requests_that_have_just_begun_do_not_undo_what_is_known_of_usable_room() -> None:
    known = settled(pool(0.6, running=12, queued=SHORT_ANSWERS), POLICY).history
    for at_s in range(405, 450, 5):  # a second replica has taken twelve waiting requests
        more = replace(SHORT_ANSWERS, requests=24)
        begun = pool(0.6, 0.1, running=12, queued=more, history=known)
        known = decide(begun, POLICY, NOW + at_s).history
    assert 0.55 < known.usable_share < 0.6


def test_a_sleeping_pool_wakes_though_growth_is_slow_or_disabled() -> None:
    rules = ScaleUp(
        stabilization_window_seconds=300,
        select_policy=SelectPolicy.DISABLED,
        policies=(RatePolicy(type=PolicyType.PODS, value=1, period_seconds=60),),
    )
    policy = changed(POLICY, min_replicas=0, idle_seconds=60, behavior=Behavior(scale_up=rules))
    asleep = decide(pool(), policy, NOW)
    queued = Queued(40, waited_ms=1_000, tokens=500_000)
    awake = decide(pool(queued=queued, history=asleep.history), policy, NOW + 5)
    assert awake.desired == 1
