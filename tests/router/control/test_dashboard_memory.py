"""What the dashboard remembers of requests and events, without a router."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_router.dashboard import events
from pando_router.dashboard.events import FleetEvents, Happened
from pando_router.dashboard.replica_totals import ReplicaTotals
from pando_router.dashboard.requests import KEPT, RecentRequests, RequestRow
from pando_router.fleet_view.redis_state import RedisState
from pando_router.fleet_view.snapshot import Fleet, Member

LOST_S = 100.0


def beat(name: str, state: ReplicaState = ReplicaState.READY, **more: Any) -> Heartbeat:
    return Heartbeat(
        replica=name, incarnation=f"{name}-1", url="http://h", model="m", state=state, **more
    )


def fleet(*beats: Heartbeat, lost: tuple[str, ...] = ()) -> Fleet:
    members = [Member(one, 0, LOST_S if one.replica in lost else 0.0) for one in beats]
    return Fleet({"default": tuple(members)})


def seen(log: FleetEvents) -> list[tuple[Happened, str]]:
    return [(one.what, one.replica) for one in log.ring.after(0)]


def test_the_fleet_as_found_is_no_event_and_each_change_is_one() -> None:
    log = FleetEvents()
    a, b = beat("a"), beat("b", ReplicaState.STARTING)
    log.look(1.0, fleet(a, b), RedisState.UP)
    assert seen(log) == []
    b = replace(b, state=ReplicaState.READY)
    log.look(2.0, fleet(a, b), RedisState.UP)
    log.look(3.0, fleet(a, b), RedisState.UP)
    log.look(4.0, fleet(a, b, lost=("a",)), RedisState.UP)
    log.look(5.0, fleet(a, replace(b, state=ReplicaState.DRAINING)), RedisState.UP)
    log.look(6.0, fleet(a), RedisState.AWAY)
    assert seen(log) == [
        (Happened.JOINED, "b"),
        (Happened.LOST, "a"),
        (Happened.READY, "a"),
        (Happened.DRAINING, "b"),
        (Happened.LEFT, "b"),
        (Happened.REDIS, ""),
    ]


def test_a_lost_replica_that_is_forgotten_is_no_second_event() -> None:
    log = FleetEvents()
    log.look(1.0, fleet(beat("a")), RedisState.UP)
    log.look(2.0, fleet(beat("a"), lost=("a",)), RedisState.UP)
    log.look(3.0, fleet(), RedisState.UP)
    assert seen(log) == [(Happened.LOST, "a")]


def test_migrated_streams_are_counted_by_the_replica_that_they_left() -> None:
    log = FleetEvents()
    for _ in range(5):
        log.migrated("default", "a")
    log.look(1.0, fleet(), RedisState.UP)
    log.look(2.0, fleet(), RedisState.UP)
    (event,) = log.ring.after(0)
    assert (event.what, event.replica, event.count) == (Happened.MIGRATED, "a", 5)


def test_events_are_bounded() -> None:
    log = FleetEvents()
    log.look(0.0, fleet(), RedisState.UP)
    for number in range(2 * events.KEPT):
        log.look(number, fleet(beat(f"r{number}")), RedisState.UP)
    assert len(log.ring.after(0)) == events.KEPT


def row(number: int, status: int) -> RequestRow:
    return RequestRow(
        number=number,
        at=0.0,
        request_id=str(number),
        path="/v1/completions",
        model="m",
        tenant="",
        pool="default",
        replica="a",
        status=status,
        complete=True,
        ttfb_s=None,
        duration_s=0.1,
        prompt_tokens=None,
        cached_tokens=None,
        tries=1,
        migrations=0,
    )


@given(st.lists(st.sampled_from((200, 200, 200, 404, 503)), max_size=500), st.integers(0, 600))
def test_the_last_requests_and_the_last_rough_ones_are_kept(
    statuses: list[int], number: int
) -> None:
    recent = RecentRequests()
    rows = [row(index, status) for index, status in enumerate(statuses, start=1)]
    for one in rows:
        recent.add(one)
    rough = [one for one in rows if one.status >= 400]
    kept = {one.number: one for one in (*rows[-KEPT:], *rough[-KEPT:])}
    after = number if number <= len(rows) else 0
    assert recent.after(number) == [kept[key] for key in sorted(kept) if key > after]


def test_tokens_are_counted_over_restarts_and_a_new_replica_starts_at_zero() -> None:
    totals = ReplicaTotals()
    totals.follow(0.0, [beat("a", prompt_tokens_total=100, output_tokens_total=10)])
    totals.follow(1.0, [beat("a", prompt_tokens_total=150, output_tokens_total=12)])
    again = replace(beat("a", prompt_tokens_total=900), incarnation="a-2")
    totals.follow(2.0, [again, replace(beat("c", prompt_tokens_total=7), model="other")])
    assert (totals.sum.tokens_in, totals.sum.tokens_out) == (50, 2)
    rates = totals.rates()
    assert (rates["m"].tokens_in_per_s, rates["m"].tokens_out_per_s) == (25.0, 1.0)
    assert rates["other"].tokens_in_per_s == 0.0
    totals.follow(3.0, [])
    assert totals.rates() == {}
