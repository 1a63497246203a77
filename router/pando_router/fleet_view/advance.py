"""`advance`: the next snapshot of the fleet, from the last one and what was read and heard since.

Any sign of life keeps a replica alive: a heartbeat, an answer to one of this router's health
checks, an answer to a request. While Redis is away or refuses writes, missing heartbeats prove
nothing: no replica's silence grows, and the checks alone decide. They also find that a stalled
replica is ready again.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from pando_fleet.redis.keys import EXPECTED
from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_router.fleet_view.snapshot import GRACE_S, Fleet, Member
from pando_router.fleet_view.targets import mark_expected, targets_by_name


def advance(
    last: Fleet,
    passed_s: float,
    heard: Mapping[str, Sequence[Replica]],
    expected: Mapping[str, Sequence[str]] | None = None,
    *,
    dark: Set[str] = frozenset(),
    answered: Set[str] = frozenset(),
    recovered: Set[str] = frozenset(),
) -> Fleet:
    """The snapshot `passed_s` after the last one.

    Args:
        heard: by pool, the replicas read from Redis.
        expected: models by pools that exist even without replicas; None if not read.
        dark: pools that could not be read in full, where silence does not count; EXPECTED if the
            expected pools could not be read.
        answered: incarnations that answered this router since the last snapshot.
        recovered: incarnations that this router has found ready although their last heartbeat
            reported a stalled engine.
    """
    signs = _Signs(_owners(heard), answered, recovered)
    pools: dict[str, tuple[Member, ...]] = {}
    for pool in sorted(last.pools.keys() | heard.keys()):
        before, there = last.pools.get(pool, ()), heard.get(pool, ())
        if members := _members(before, there, signs, passed_s, is_dark=pool in dark):
            pools[pool] = tuple(sorted(members, key=lambda one: one.beat.replica))
    models = targets_by_name(pools, lambda beat: {beat.model: ""})
    adapters = targets_by_name(pools, Heartbeat.adapters_by_name)
    still = _still_expected(last, 0.0 if EXPECTED in dark else passed_s)
    confirmed = {pool: (names, 0.0) for pool, names in (expected or {}).items()}
    mark_expected(still | confirmed, models, adapters)
    return Fleet(pools, models, adapters, still | confirmed)


@dataclass(frozen=True, slots=True)
class _Signs:
    """Signs of life since the last snapshot."""

    owners: Mapping[str, str]  # by URL, the incarnation whose heartbeats come from there
    answered: Set[str]
    recovered: Set[str]

    def has_answered(self, beat: Heartbeat) -> bool:
        """Whether it has answered, and not a new incarnation at its address."""
        is_there = self.owners.get(beat.url, beat.incarnation) == beat.incarnation
        return is_there and beat.incarnation in self.answered

    def member(self, beat: Heartbeat, age_ms: int, silent_s: float, withheld: str) -> Member:
        is_old = age_ms > FRESH_MS and beat.state is ReplicaState.STALLED
        if is_old and beat.incarnation in self.recovered:
            beat = replace(beat, state=ReplicaState.READY)
        return Member(beat, age_ms, silent_s, withheld)


def _owners(heard: Mapping[str, Sequence[Replica]]) -> dict[str, str]:
    return {
        replica.beat.url: replica.beat.incarnation
        for replicas in heard.values()
        for replica in replicas
        if replica.age_ms <= FRESH_MS
    }


def _members(
    before: Sequence[Member],
    heard: Sequence[Replica],
    signs: _Signs,
    passed_s: float,
    *,
    is_dark: bool,
) -> list[Member]:
    """A pool's members: those that were heard, and earlier ones that may still live."""
    grown_s = 0.0 if is_dark else passed_s
    unheard = {known.beat.replica: known for known in before}
    members = []
    for replica in heard:
        beat, silent_s = replica.beat, replica.age_ms / 1000
        known = unheard.pop(beat.replica, None)
        if signs.has_answered(beat):
            silent_s = 0.0
        elif known is not None and known.beat.incarnation == beat.incarnation:
            silent_s = min(silent_s, known.silent_s + grown_s)
        members.append(signs.member(beat, replica.age_ms, silent_s, replica.withheld))
    for gone in unheard.values():
        silent_s = 0.0 if signs.has_answered(gone.beat) else gone.silent_s + grown_s
        age_ms = gone.age_ms + int(1000 * passed_s)
        left = signs.member(gone.beat, age_ms, silent_s, gone.withheld)
        if is_dark or left.trusted:  # a worker that leaves properly drains before
            members.append(left)
    return members


def _still_expected(last: Fleet, passed_s: float) -> dict[str, tuple[Sequence[str], float]]:
    """The expected pools of the last snapshot, unless nobody has confirmed them for too long."""
    return {
        pool: (names, silent_s + passed_s)
        for pool, (names, silent_s) in last.expected.items()
        if silent_s + passed_s <= GRACE_S
    }
