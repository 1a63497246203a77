"""Shares the GPUs of one kind among the pools that want them; pure.

First each pool gets its fewest replicas, then pools of a higher priority get all that they want.
Among equals the next GPU goes to the pool that is the most over its target: wanted replicas are the
load over the target, so that is the one that has the smallest part of what it wants. A pool keeps
what it has unless another is clearly worse off (`MARGIN`), because a moved replica loads a model.

A pool that loses a replica drains it as usual. The one that gains it waits until it is gone, so
there are never more GPUs in use than the budget has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, inf

MARGIN = 1.25
"""How many times further over its target a pool must be to take a replica from another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one pool wants; all but `gpus` and `priority` are numbers of replicas."""

    pool: str
    wanted: int  # by its load and its own limits
    least: int  # that it gets before others get more
    held: int  # that have GPUs, leaving ones included, or may get some at any time
    kept: int  # of these, those that need not leave
    gpus: int  # of a replica
    priority: int

    @property
    def rank(self) -> tuple[int, str]:
        return -self.priority, self.pool

    def over(self, replicas: int) -> float:
        """How many times its target the load would be on so many replicas."""
        return self.wanted / replicas if replicas else inf if self.wanted else 0.0


@dataclass(frozen=True, slots=True)
class Grant:
    """The most replicas that a pool may have now; `reason` explains it if that is not enough."""

    replicas: int
    reason: str = ""
    holds: int = 0  # replicas with GPUs, once it has grown to that


def grants(claims: Iterable[Claim], kind: str, total: int) -> dict[str, Grant]:
    """A grant for each pool.

    Args:
        claims: of all pools with this kind of GPU, each pool once.
        kind: its name, for the reasons.
        total: how many there are.
    """
    ranked = sorted(claims, key=lambda claim: claim.rank)
    shares = _shares(ranked, total)
    allowed = _now(ranked, shares, total)
    used = sum(_holding(claim, allowed[claim.pool]) * claim.gpus for claim in ranked)
    return {
        claim.pool: Grant(
            allowed[claim.pool],
            _reason(claim, ranked, shares, allowed, f"{used} of {total} {kind} in use"),
            _holding(claim, allowed[claim.pool]),
        )
        for claim in ranked
    }


def _shares(ranked: Sequence[Claim], total: int) -> dict[str, int]:
    """How many replicas each pool should have, whether or not others still hold the GPUs."""
    shares, room = {}, total
    for claim in ranked:
        least = max(0, min(claim.least, claim.wanted, room // claim.gpus))
        shares[claim.pool] = least
        room -= least * claim.gpus
    for _, group in groupby(ranked, key=lambda claim: claim.priority):
        equals = list(group)
        room = _keep(equals, shares, room)
        room = _fill(equals, shares, room)
        room = _exchange(equals, shares, room)
    return shares


def _keep(equals: Sequence[Claim], shares: dict[str, int], room: int) -> int:
    """Let each pool keep what it holds and wants, the pools that are the most over first."""
    while True:
        keeping = [
            claim
            for claim in equals
            if shares[claim.pool] < min(claim.kept, claim.wanted) and claim.gpus <= room
        ]
        if not keeping:
            return room
        room = _give(_most_over(keeping, shares), shares, room)


def _fill(equals: Sequence[Claim], shares: dict[str, int], room: int) -> int:
    """Give what is left."""
    while short := [claim for claim in _short(equals, shares) if claim.gpus <= room]:
        room = _give(_most_over(short, shares), shares, room)
    return room


def _exchange(equals: Sequence[Claim], shares: dict[str, int], room: int) -> int:
    """Move replicas from pools that are little over their targets to those that are far over."""
    while True:
        for gains in sorted(_short(equals, shares), key=lambda c: -c.over(shares[c.pool])):
            loses, count = _loser(gains, equals, shares, room)
            if loses is None:
                continue
            shares[loses.pool] -= count
            room = _give(gains, shares, room + count * loses.gpus)
            break
        else:
            return room


def _loser(
    gains: Claim, equals: Sequence[Claim], shares: Mapping[str, int], room: int
) -> tuple[Claim | None, int]:
    """The pool that gives up replicas for one of `gains`, and how many."""
    best: tuple[float, Claim, int] | None = None
    for claim in equals:
        count = ceil((gains.gpus - room) / claim.gpus)
        left = shares[claim.pool] - count
        if claim is gains or left < min(claim.least, claim.wanted):
            continue
        over = claim.over(left)
        if over * MARGIN < gains.over(shares[gains.pool]) and (best is None or over < best[0]):
            best = over, claim, count
    return (None, 0) if best is None else best[1:]


def _short(equals: Sequence[Claim], shares: Mapping[str, int]) -> list[Claim]:
    return [claim for claim in equals if shares[claim.pool] < claim.wanted]


def _most_over(claims: Sequence[Claim], shares: Mapping[str, int]) -> Claim:
    return max(claims, key=lambda claim: claim.over(shares[claim.pool]))


def _give(claim: Claim, shares: dict[str, int], room: int) -> int:
    shares[claim.pool] += 1
    return room - claim.gpus


def _now(ranked: Sequence[Claim], shares: Mapping[str, int], total: int) -> dict[str, int]:
    """The shares, as far as nobody holds the GPUs that they need."""
    free = total - sum(claim.held * claim.gpus for claim in ranked)
    allowed = {}
    for claim in ranked:
        grows = max(0, min(shares[claim.pool] - claim.kept, free // claim.gpus))
        free -= grows * claim.gpus
        allowed[claim.pool] = min(shares[claim.pool], claim.kept + grows)
    return allowed


def _holding(claim: Claim, allowed: int) -> int:
    """The replicas with GPUs once the pool has grown to what is allowed."""
    return claim.held + max(0, allowed - claim.kept)


def _reason(
    claim: Claim,
    ranked: Sequence[Claim],
    shares: Mapping[str, int],
    allowed: Mapping[str, int],
    used: str,
) -> str:
    gets = allowed[claim.pool]
    if gets >= claim.wanted:
        return ""
    words = f"wants {claim.wanted}, gets {gets}: {used}"
    if gets < shares[claim.pool]:
        leaving = [other.pool for other in ranked if other.held > shares[other.pool]]
        by = f" by {', '.join(leaving)}" if leaving else ""
        return f"{words}; {shares[claim.pool]} once others are given back{by}"
    higher = [other for other in ranked if other.priority > claim.priority and shares[other.pool]]
    equal = [
        f"{other.pool} gets {shares[other.pool]} of {other.wanted}"
        for other in ranked
        if other.priority == claim.priority and other is not claim and shares[other.pool]
    ]
    said = [f"{other.pool} has priority {other.priority}" for other in higher] or equal
    return "; ".join([words, *said[:3]])
