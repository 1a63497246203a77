"""Which replicas adapters are loaded on, from pods and heartbeats."""

from typing import Any

from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.adapter import Adapter
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_operator.adapters.replicas import Held, HostReplica
from pando_operator.controller.observing.adapter_hosts import host_replicas
from tests.operator.lifecycle.planned import NOW, drained, pod, starting

IDENTITY = "0" * 32


def beat(name: str, age_ms: int = 100, **fields: Any) -> Replica:
    held = Adapter(name="pirate", identity=IDENTITY, pinned=True)
    values: dict[str, Any] = {
        "incarnation": f"i-{name}",
        "url": f"http://{name}",
        "model": "m",
        "state": ReplicaState.READY,
        "adapters": ("pirate",),
        "adapter_states": (held,),
        "adapter_slots": 4,
    }
    return Replica(Heartbeat(replica=name, **values | fields), age_ms)


def host(*replicas: Replica, **fields: Any) -> HostReplica:
    (found,) = host_replicas([pod("a", **fields)], replicas, NOW)
    return found


def test_a_replica_is_its_pod_and_its_heartbeat() -> None:
    assert host(beat("b"), beat("a"), joining_since=NOW - 30) == HostReplica(
        name="a",
        incarnation="i-a",
        url="http://a",
        answers=True,
        slots=4,
        holds={"pirate": Held(IDENTITY, True)},
        joining=False,
        joining_s=30.0,
    )
    assert host(beat("a"), gate=False).joining


def test_a_replica_that_is_silent_stalled_or_not_loaded_does_not_answer() -> None:
    assert not host(beat("a", FRESH_MS + 1)).answers
    for state in (ReplicaState.STARTING, ReplicaState.STALLED, ReplicaState.DRAINING):
        assert not host(beat("a", state=state)).answers
    assert not host().answers


def test_names_alone_from_an_older_release_are_adapters_that_take_no_calls() -> None:
    old = host(beat("a", adapter_states=(), adapter_slots=0))
    assert old.holds == {"pirate": Held("")}
    assert not old.takes_calls


def test_leaving_pods_and_starting_ones_without_adapters_are_left_out() -> None:
    pods = [drained("a"), pod("b", deleting=True), starting("c"), starting("d")]
    beats = [beat("a"), beat("b"), beat("d", state=ReplicaState.STALLED)]
    assert [one.name for one in host_replicas(pods, beats, NOW)] == ["d"]
