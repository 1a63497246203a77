"""When the router's view of the fleet follows the registry, and when it does not."""

from pando_fleet.redis.keys import EXPECTED
from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_router.fleet_view.advance import advance
from pando_router.fleet_view.snapshot import GRACE_S, LOOKS_READY_S, Fleet, MemberState

SILENT_MS = 20 * FRESH_MS


def replica(
    name: str,
    *,
    age_ms: int = 0,
    state: ReplicaState = ReplicaState.READY,
    incarnation: str = "1",
    url: str = "",
) -> Replica:
    beat = Heartbeat(
        replica=name,
        incarnation=name + incarnation,
        url=url or f"http://{name}",
        model="m",
        state=state,
    )
    return Replica(beat, age_ms)


def trusted(fleet: Fleet) -> list[str]:
    return [
        member.beat.replica
        for targets in fleet.models.values()
        for target in targets
        for member in target.trusted
    ]


def test_ready_and_fresh_replicas_are_trusted_and_no_others() -> None:
    heard = [
        replica("a"),
        replica("b", state=ReplicaState.DRAINING),
        replica("c", state=ReplicaState.STARTING),
        replica("d", age_ms=60_000),
    ]
    fleet = advance(Fleet(), 0.0, {"p": heard})
    assert trusted(fleet) == ["a"]
    states = [member.state.value for member in fleet.pools["p"]]
    assert states == ["ready", "draining", "starting", "lost"]


def test_replica_that_vanishes_is_lost_soon_and_gone_after_the_grace() -> None:
    fleet = advance(Fleet(), 0.0, {"p": [replica("a")]})
    fleet = advance(fleet, LOOKS_READY_S, {})
    assert trusted(fleet) == ["a"]
    assert fleet.pools["p"][0].state is MemberState.LOST
    fleet = advance(fleet, 0.1, {})
    assert not fleet.pools
    assert not fleet.models


def test_draining_replica_that_leaves_is_gone_at_once() -> None:
    fleet = advance(Fleet(), 0.0, {"p": [replica("a", state=ReplicaState.DRAINING)]})
    assert not advance(fleet, 0.1, {}).pools


def test_stale_heartbeats_after_an_outage_do_not_lose_a_replica_known_before() -> None:
    """They are from before the outage, during which silence does not count."""
    fleet = advance(Fleet(), 0.0, {"p": [replica("a")]})
    fleet = advance(fleet, 60.0, {}, dark={"p"})
    fleet = advance(fleet, 0.2, {"p": [replica("a", age_ms=FRESH_MS * 5)]})
    assert trusted(fleet) == ["a"]
    fleet = advance(fleet, LOOKS_READY_S, {"p": [replica("a", age_ms=FRESH_MS * 7)]})
    assert trusted(fleet) == []


def test_restarted_replica_does_not_inherit_trust() -> None:
    fleet = advance(Fleet(), 0.0, {"p": [replica("a")]})
    stale = replica("a", age_ms=30_000, incarnation="2")
    assert trusted(advance(fleet, 0.1, {"p": [stale]})) == []


def test_a_silence_that_all_share_loses_nobody_and_one_that_is_shared_by_none_does() -> None:
    silent = [replica(name, age_ms=SILENT_MS) for name in "ab"]
    fleet = advance(Fleet(), 0.0, {"p": [replica("a"), replica("b")]})
    for _ in range(100):  # heartbeats can be read, but no new ones can be written
        fleet = advance(fleet, 1.0, {"p": silent}, dark={"p"})
    assert trusted(fleet) == ["a", "b"]
    assert {member.state for member in fleet.pools["p"]} == {MemberState.READY}
    fleet = advance(fleet, LOOKS_READY_S + 0.1, {"p": [silent[0], replica("b")]})
    assert trusted(fleet) == ["b"]


def test_a_replica_that_answers_lives_however_long_its_heartbeats_are_missing() -> None:
    fleet = advance(Fleet(), 0.0, {"p": [replica("a"), replica("b")]})
    for _ in range(100):
        fleet = advance(fleet, 1.0, {"p": [replica("b")]}, answered={"a1"})
    assert trusted(fleet) == ["a", "b"]
    fleet = advance(fleet, LOOKS_READY_S + 0.1, {"p": [replica("b")]})
    assert trusted(fleet) == ["b"]


def test_a_stalled_replica_that_has_recovered_is_ready_until_a_heartbeat_says_otherwise() -> None:
    stalled = replica("a", state=ReplicaState.STALLED)
    fleet = advance(Fleet(), 0.0, {"p": [stalled]}, recovered={"a1"})
    assert trusted(fleet) == []
    fleet = advance(fleet, FRESH_MS / 1000 + 0.1, {}, dark={"p"}, recovered={"another"})
    assert trusted(fleet) == []
    away = advance(fleet, 0.1, {}, dark={"p"}, recovered={"a1"})
    assert trusted(away) == ["a"]
    old = {"p": [replica("a", state=ReplicaState.STALLED, age_ms=FRESH_MS + 1)]}
    assert trusted(advance(fleet, 0.1, old, dark={"p"}, recovered={"a1"})) == ["a"]
    assert trusted(advance(away, 0.1, {"p": [stalled]}, recovered={"a1"})) == []


def test_a_replica_that_was_never_heard_lives_once_it_answers() -> None:
    """For example if a router starts while Redis refuses writes."""
    heard = {"p": [replica("a", age_ms=SILENT_MS)]}
    fleet = advance(Fleet(), 0.0, heard, dark={"p"})
    assert trusted(fleet) == []
    assert trusted(advance(fleet, 1.0, heard, dark={"p"}, answered={"a1"})) == ["a"]


def test_another_replica_that_answers_at_its_address_does_not_keep_a_dead_one_alive() -> None:
    fleet = advance(Fleet(), 0.0, {"p": [replica("a", url="http://pod")]})
    heir = {"q": [replica("b", url="http://pod")]}
    fleet = advance(fleet, LOOKS_READY_S + 0.1, heir, answered={"a1", "b1"})
    assert trusted(fleet) == ["b"]


def test_a_pool_that_cannot_be_read_stays_as_it_was_and_the_others_go_on() -> None:
    both = {"p": [replica("a")], "q": [replica("b")]}
    fleet = advance(Fleet(), 0.0, both)
    fleet = advance(fleet, 60.0, {"q": [replica("b"), replica("c")]}, dark={"p"})
    assert trusted(fleet) == ["a", "b", "c"]
    assert [member.age_ms for member in fleet.pools["p"]] == [60_000]


def test_an_expected_pool_is_known_while_it_has_no_replicas() -> None:
    fleet = advance(Fleet(), 0.0, {}, {"p": ("m", "adapter")})
    assert set(fleet.models) == {"m", "adapter"}
    (asleep,) = fleet.models["m"]
    assert (asleep.pool, asleep.trusted, asleep.is_coming) == ("p", (), True)
    assert fleet.serving("m", "/v1/completions") == (asleep,)
    assert fleet.ready  # to let requests wait
    fleet = advance(fleet, 0.0, {"p": [replica("a")]}, {"p": ("m", "adapter")})
    (awake,) = fleet.models["m"]
    assert (len(awake.trusted), awake.expected) == (1, True)
    assert not advance(fleet, LOOKS_READY_S + 0.1, {}).models


def test_a_sleeping_pool_outlives_a_redis_that_comes_back_empty() -> None:
    """Its row is written again within the grace period, which pauses while Redis is away."""
    fleet = advance(Fleet(), 0.0, {}, {"p": ("m",)})
    fleet = advance(fleet, 60.0, {}, dark={EXPECTED})
    fleet = advance(fleet, GRACE_S, {})
    assert [target.is_coming for target in fleet.models["m"]] == [True]
    again = advance(fleet, 0.2, {}, {"p": ("other",)})
    assert set(again.models) == {"other"}  # a report counts at once
    assert set(advance(again, GRACE_S, {}).models) == {"other"}
    gone = advance(fleet, 0.1, {})  # no new row: the pool was deleted
    assert not gone.models
    assert not gone.expected


def test_a_pool_is_coming_while_a_replica_starts_and_not_while_the_last_drains() -> None:
    for state, coming in ((ReplicaState.STARTING, True), (ReplicaState.DRAINING, False)):
        (target,) = advance(Fleet(), 0.0, {"p": [replica("a", state=state)]}).models["m"]
        assert target.is_coming is coming


def test_marked_replica_is_not_trusted_however_ready_it_says_that_it_is() -> None:
    heard = [
        Replica(replica("a").beat, 0, "drain"),
        Replica(replica("b").beat, 0, "warm"),
        replica("c"),
    ]
    fleet = advance(Fleet(), 0.0, {"p": heard})
    assert trusted(fleet) == ["c"]
    states = [member.state.value for member in fleet.pools["p"]]
    assert states == ["draining", "warming", "ready"]
    gone = advance(fleet, 0.1, {"p": [replica("c")]})  # a draining one leaves at once
    assert [member.beat.replica for member in gone.pools["p"]] == ["c"]
