"""The replicas of a pool as plans of adapters see them: pods and their heartbeats together."""

from collections.abc import Sequence

from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_operator.adapters.replicas import Held, HostReplica
from pando_operator.lifecycle.pods import PodView


def host_replicas(
    pods: Sequence[PodView], replicas: Sequence[Replica], now: float
) -> list[HostReplica]:
    """The replicas that stay, without those that start and have no adapter yet.

    Args:
        now: seconds since 1970.
    """
    by_name = {one.beat.replica: one for one in replicas}
    found = (_host(pod, by_name.get(pod.name), now) for pod in pods if _stays(pod))
    return [one for one in found if one is not None]


def _stays(pod: PodView) -> bool:
    return pod.is_alive and pod.draining_since is None


def _host(pod: PodView, replica: Replica | None, now: float) -> HostReplica | None:
    beat = replica.beat if replica else None
    holds = _holds(beat) if beat else {}
    if not pod.containers_ready and not holds:
        return None
    return HostReplica(
        name=pod.name,
        incarnation=beat.incarnation if beat else "",
        url=beat.url if beat else "",
        token=beat.admin_token if beat else "",
        answers=replica is not None and _answers(replica),
        slots=beat.adapter_slots if beat else 0,
        holds=holds,
        joining=not pod.gate,
        joining_s=0.0 if pod.joining_since is None else now - pod.joining_since,
    )


def _holds(beat: Heartbeat) -> dict[str, Held]:
    """An older release reports names only."""
    names = {name: Held("") for name in beat.adapters}
    return names | {one.name: Held(one.identity, one.pinned) for one in beat.adapter_states}


def _answers(replica: Replica) -> bool:
    return replica.age_ms <= FRESH_MS and replica.beat.state is ReplicaState.READY
