"""How long replicas take to start, as a router sees it."""

from collections.abc import Sequence

from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_router.fleet_view.advance import advance
from pando_router.fleet_view.snapshot import Fleet
from pando_router.recording.fleet_states import FleetStates

STARTING, READY = ReplicaState.STARTING, ReplicaState.READY


def replica(name: str, state: ReplicaState, withheld: str = "") -> Replica:
    beat = Heartbeat(
        replica=name, incarnation=f"{name}.1", url="http://127.0.0.1:1", model="m", state=state
    )
    return Replica(beat, 0, withheld)


def test_only_a_replica_seen_from_its_start_has_a_start_time() -> None:
    states = FleetStates("router", lambda pool: "cache_aware", dict)
    fleet = Fleet()

    def look(at_s: float, replicas: Sequence[Replica]) -> None:
        nonlocal fleet
        fleet = advance(fleet, at_s, {"p": list(replicas)})
        states.follow(fleet, at_s)

    look(10.0, [replica("early", STARTING)])
    look(12.0, [replica("early", STARTING), replica("late", STARTING)])
    look(13.0, [replica("early", READY), replica("late", STARTING)])
    look(20.0, [replica("early", READY), replica("late", READY, "warm")])
    look(25.5, [replica("early", READY), replica("late", READY)])
    pool = states.line(fleet, 30.0, 0).pools["p"]
    assert pool.started == [("late", 13.5)]
