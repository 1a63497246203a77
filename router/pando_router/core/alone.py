"""Where a request goes when Redis has no part in it, by what this router knows itself."""

from collections.abc import Callable, Sequence

from pando_router.core import rendezvous
from pando_router.core.flight import MemberT
from pando_router.core.route import Route


def with_room(
    members: Sequence[MemberT], load: Callable[[MemberT], int], most: int
) -> tuple[MemberT, ...]:
    """Those that may have one more request; `most` is the router's own bound, 0 for none."""
    return tuple(one for one in members if _has_room(load(one), most, one.beat.max_requests))


def route_alone(
    pool: str,
    members: Sequence[MemberT],
    picked: MemberT | None,
    affinity: bytes,
    load: Callable[[MemberT], int],
) -> Route:
    """What the policy picked of `members` (at least one), else where the prompt's start belongs.

    Args:
        affinity: the start of the prompt, by which prompts that share it stay together.
        load: requests at a member, as far as this router knows.
    """
    if picked is None:
        by_name = {one.beat.replica: one for one in members}
        loads = {name: load(one) for name, one in by_name.items()}
        picked = by_name[rendezvous.choose(affinity, loads)]
    beat = picked.beat
    return Route(pool, beat.replica, beat.incarnation, beat.url)


def _has_room(requests: int, *bounds: int) -> bool:
    return all(not bound or requests < bound for bound in bounds)
