"""How the router's picture of the fleet follows the registry, and when it does not."""

from pando_fleet.layout.constants import FRESH_MS
from pando_fleet.replica import Heartbeat, Replica, ReplicaState
from pando_router.fleet_view import GRACE_S, Fleet, MemberState, advance


def replica(
    name: str, *, age_ms: int = 0, state: ReplicaState = ReplicaState.READY, incarnation: str = "1"
) -> Replica:
    beat = Heartbeat(
        replica=name, incarnation=name + incarnation, url="http://x", model="m", state=state
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
    fleet = advance(Fleet(), {"p": heard}, 0.0)
    assert trusted(fleet) == ["a"]
    states = [member.state.value for member in fleet.pools["p"]]
    assert states == ["ready", "draining", "starting", "lost"]


def test_replica_that_vanishes_is_trusted_for_the_grace_and_then_gone() -> None:
    fleet = advance(Fleet(), {"p": [replica("a")]}, 0.0)
    fleet = advance(fleet, {}, GRACE_S)
    assert trusted(fleet) == ["a"]
    assert fleet.pools["p"][0].state is MemberState.LOST
    fleet = advance(fleet, {}, 0.1)
    assert not fleet.pools
    assert not fleet.models


def test_draining_replica_that_leaves_is_gone_at_once() -> None:
    fleet = advance(Fleet(), {"p": [replica("a", state=ReplicaState.DRAINING)]}, 0.0)
    assert not advance(fleet, {}, 0.1).pools


def test_stale_heartbeats_after_an_outage_do_not_lose_a_replica_known_before() -> None:
    """While Redis is away no time passes (elapsed 0), and its heartbeats are from before."""
    fleet = advance(Fleet(), {"p": [replica("a")]}, 0.0)
    fleet = advance(fleet, {"p": [replica("a", age_ms=FRESH_MS * 5)]}, 0.0)
    assert trusted(fleet) == ["a"]
    fleet = advance(fleet, {"p": [replica("a", age_ms=FRESH_MS * 7)]}, GRACE_S + 0.1)
    assert trusted(fleet) == []


def test_restarted_replica_does_not_inherit_trust() -> None:
    fleet = advance(Fleet(), {"p": [replica("a")]}, 0.0)
    stale = replica("a", age_ms=30_000, incarnation="2")
    assert trusted(advance(fleet, {"p": [stale]}, 0.1)) == []


def test_an_expected_pool_is_known_while_it_has_no_replicas() -> None:
    fleet = advance(Fleet(), {}, 0.0, {"p": ("m", "adapter")})
    assert set(fleet.models) == {"m", "adapter"}
    (asleep,) = fleet.models["m"]
    assert (asleep.pool, asleep.trusted, asleep.is_coming) == ("p", (), True)
    assert fleet.serving("m", "/v1/completions") == (asleep,)
    assert fleet.ready  # for requests that wait
    fleet = advance(fleet, {"p": [replica("a")]}, 0.0, {"p": ("m", "adapter")})
    (awake,) = fleet.models["m"]
    assert (len(awake.trusted), awake.expected) == (1, True)
    assert not advance(fleet, {}, GRACE_S + 0.1).models


def test_a_sleeping_pool_outlives_a_redis_that_comes_back_empty() -> None:
    """Its row is written anew within the grace; while Redis is away no time passes."""
    fleet = advance(Fleet(), {}, 0.0, {"p": ("m",)})
    fleet = advance(fleet, {}, 0.0)
    fleet = advance(fleet, {}, GRACE_S)
    assert [target.is_coming for target in fleet.models["m"]] == [True]
    again = advance(fleet, {}, 0.2, {"p": ("other",)})
    assert set(again.models) == {"other"}  # what is said counts at once
    assert set(advance(again, {}, GRACE_S).models) == {"other"}
    gone = advance(fleet, {}, 0.1)  # nobody wrote it: the pool was deleted
    assert not gone.models
    assert not gone.expected


def test_a_pool_is_coming_while_a_replica_starts_and_not_while_the_last_drains() -> None:
    for state, coming in ((ReplicaState.STARTING, True), (ReplicaState.DRAINING, False)):
        (target,) = advance(Fleet(), {"p": [replica("a", state=state)]}, 0.0).models["m"]
        assert target.is_coming is coming


def test_marked_replica_is_not_trusted_however_ready_it_says_that_it_is() -> None:
    heard = [
        Replica(replica("a").beat, 0, "drain"),
        Replica(replica("b").beat, 0, "warm"),
        replica("c"),
    ]
    fleet = advance(Fleet(), {"p": heard}, 0.0)
    assert trusted(fleet) == ["c"]
    states = [member.state.value for member in fleet.pools["p"]]
    assert states == ["draining", "warming", "ready"]
    gone = advance(fleet, {"p": [replica("c")]}, 0.1)  # what drains and leaves is gone at once
    assert [member.beat.replica for member in gone.pools["p"]] == ["c"]
