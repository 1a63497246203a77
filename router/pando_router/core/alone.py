"""Chooses a replica without Redis, from what this router knows."""

from collections.abc import Callable, Sequence

from pando_fleet.registry.adapter import AdapterPlace
from pando_fleet.registry.replica import Heartbeat
from pando_router.core import rendezvous
from pando_router.core.flight import HasBeatT
from pando_router.core.route import Route


def with_room(
    members: Sequence[HasBeatT], load: Callable[[HasBeatT], int], most: int
) -> tuple[HasBeatT, ...]:
    """Members that may take one more request; `most` is the router's own limit, 0 for none."""
    return tuple(one for one in members if _has_room(load(one), most, one.beat.max_requests))


def route_alone(
    pool: str,
    members: Sequence[HasBeatT],
    picked: HasBeatT | None,
    affinity: bytes,
    load: Callable[[HasBeatT], int],
    adapter_key: str = "",
) -> Route:
    """Returns the member that the policy picked, else one by hash of what prompts share; first
    among those that held the adapter in device memory when last heard of.

    Args:
        members: at least one.
        affinity: the start of the prompt or its adapter; prompts that share it go to one replica.
        load: number of requests at a member, as far as this router knows.
        adapter_key: of the adapter that the prompt needs, if any.
    """
    if picked is None:
        by_name = {one.beat.replica: one for one in members}
        loads = {name: load(one) for name, one in by_name.items()}
        warm = {name for name, one in by_name.items() if _has_loaded(one.beat, adapter_key)}
        picked = by_name[rendezvous.choose(affinity, loads, warm)]
    beat = picked.beat
    return Route(pool, beat.replica, beat.incarnation, beat.url)


def _has_loaded(beat: Heartbeat, adapter_key: str) -> bool:
    return bool(adapter_key) and adapter_key in beat.adapter_keys(AdapterPlace.DEVICE)


def _has_room(requests: int, *bounds: int) -> bool:
    return all(not bound or requests < bound for bound in bounds)
