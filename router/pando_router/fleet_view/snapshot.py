"""`Fleet`: the replicas as this router last knew them, an immutable snapshot; `advance` makes the
next one from the last and what was read and heard since, and does nothing else.

Any sign of life keeps a replica alive: a heartbeat, an answer to one of this router's health
checks, an answer to a request. While Redis is away or refuses writes, missing heartbeats prove
nothing: no replica's silence grows, and the checks alone decide. They also find that a stalled
replica is ready again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean

from pando_fleet.images.rule import ImageRule
from pando_fleet.redis.keys import EXPECTED
from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState

# How long a lost replica is still trusted, and a pool that is no longer expected still is. A Redis
# that returns empty or with old heartbeats does not mean dead replicas or deleted pools.
GRACE_S = 5.0

LOST_AFTER_S = FRESH_MS / 1000

LOOKS_READY_S = LOST_AFTER_S + GRACE_S
"""For how long requests may be placed on a replica that has died."""


class MemberState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STALLED = "stalled"  # its engine has been silent for some seconds
    WARMING = "warming"  # could serve, but first computes the hottest prefixes
    DRAINING = "draining"
    LOST = "lost"  # its last sign of life is too old


_COMING = frozenset((MemberState.STARTING, MemberState.WARMING, MemberState.STALLED))
BYTES_PER_TOKEN = 4.0  # until a replica has measured


@dataclass(frozen=True, slots=True)
class Member:
    """One replica as last known."""

    beat: Heartbeat
    age_ms: int  # of that heartbeat
    silent_s: float  # since its last sign of life, without time in which Redis was away
    withheld: str = ""  # the mark that excludes it from placement, see Replica.withheld

    @property
    def beats(self) -> bool:
        """Whether its heartbeats arrive."""
        return self.age_ms <= FRESH_MS

    @property
    def state(self) -> MemberState:
        if self.silent_s > LOST_AFTER_S:
            return MemberState.LOST
        if self.withheld and self.beat.state is ReplicaState.READY:
            return MemberState.WARMING if self.withheld == "warm" else MemberState.DRAINING
        return MemberState(self.beat.state.value)

    @property
    def trusted(self) -> bool:
        """Whether requests may go there."""
        ready = self.beat.state is ReplicaState.READY and not self.withheld
        return ready and self.silent_s <= LOOKS_READY_S


@dataclass(frozen=True, slots=True)
class Target:
    """The replicas of one pool that serve one model, or one adapter of it."""

    pool: str
    model: str
    adapter: str  # empty: the model itself
    adapter_key: str  # by its weights, see `pando_fleet.registry.adapter`; empty without an adapter
    members: tuple[Member, ...]
    trusted: tuple[Member, ...]  # the members to which requests may go
    foreign: tuple[str, ...]  # replicas of the pool that serve something else
    bytes_per_token: float  # prompt bytes per prompt token, mean over the replicas
    image_rule: ImageRule | None = None  # from an image's size to its tokens; None: unknown
    narrowed: tuple[str, ...] = ()  # adapters, paths, … that only these replicas of the model serve
    expected: bool = False  # the pool exists and will have replicas for this, even if it has none

    @property
    def is_coming(self) -> bool:
        """Whether a replica is expected to become ready."""
        return self.expected or any(member.state in _COMING for member in self.members)

    def at(self, path: str) -> "Target | None":
        """The target with the members that serve `path`; None if there are none."""
        return self.kept(lambda member: member.beat.serves(path), path)

    def kept(self, keep: Callable[[Member], bool], why: str) -> "Target | None":
        """The target with some of its members; None if there are none. The rest become foreign.

        `why` names what only these members serve.
        """
        kept = tuple(member for member in self.members if keep(member))
        if len(kept) == len(self.members):
            return self
        if not kept:
            return None
        others = tuple(member.beat.replica for member in self.members if not keep(member))
        trusted = tuple(member for member in self.trusted if keep(member))
        return replace(
            self,
            members=kept,
            trusted=trusted,
            foreign=self.foreign + others,
            narrowed=(*self.narrowed, why),
        )


@dataclass(frozen=True, slots=True)
class Fleet:
    """A snapshot: the members by pool, and the targets by model and adapter."""

    pools: Mapping[str, tuple[Member, ...]] = field(default_factory=dict)
    models: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    adapters: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    # By pool that exists even without replicas: its models, and how long ago that was confirmed.
    expected: Mapping[str, tuple[Sequence[str], float]] = field(default_factory=dict)
    _serving: dict[tuple[str, str], tuple[Target, ...]] = field(default_factory=dict)  # a cache

    def targets(self, name: str) -> tuple[Target, ...] | None:
        """The targets that serve the model or adapter of this name; None if there are none."""
        return self.models.get(name) or self.adapters.get(name)

    def serving(self, name: str, path: str) -> tuple[Target, ...] | None:
        """Those of `targets(name)` that serve one of the router's paths; may be empty."""
        found = self._serving.get((name, path))
        if found is None and (targets := self.targets(name)) is not None:
            found = tuple(there for target in targets if (there := target.at(path)))
            self._serving[name, path] = found
        return found

    @property
    def ready(self) -> bool:
        """Whether any replica can take requests, or is expected to for one that waits."""
        return any(
            target.trusted or target.expected
            for targets in self.models.values()
            for target in targets
        )


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
    owners = {
        replica.beat.url: replica.beat.incarnation
        for replicas in heard.values()
        for replica in replicas
        if replica.age_ms <= FRESH_MS
    }

    def is_alive(beat: Heartbeat) -> bool:
        """Whether it has answered, and not a new incarnation at its address."""
        is_there = owners.get(beat.url, beat.incarnation) == beat.incarnation
        return is_there and beat.incarnation in answered

    def member(beat: Heartbeat, age_ms: int, silent_s: float, withheld: str) -> Member:
        is_old = age_ms > FRESH_MS and beat.state is ReplicaState.STALLED
        if is_old and beat.incarnation in recovered:
            beat = replace(beat, state=ReplicaState.READY)
        return Member(beat, age_ms, silent_s, withheld)

    pools: dict[str, tuple[Member, ...]] = {}
    for pool in sorted(last.pools.keys() | heard.keys()):
        grown_s = 0.0 if pool in dark else passed_s
        before = {known.beat.replica: known for known in last.pools.get(pool, ())}
        members = []
        for replica in heard.get(pool, ()):
            beat, silent_s = replica.beat, replica.age_ms / 1000
            known = before.pop(beat.replica, None)
            if is_alive(beat):
                silent_s = 0.0
            elif known is not None and known.beat.incarnation == beat.incarnation:
                silent_s = min(silent_s, known.silent_s + grown_s)
            members.append(member(beat, replica.age_ms, silent_s, replica.withheld))
        for gone in before.values():
            silent_s = 0.0 if is_alive(gone.beat) else gone.silent_s + grown_s
            age_ms = gone.age_ms + int(1000 * passed_s)
            left = member(gone.beat, age_ms, silent_s, gone.withheld)
            if pool in dark or left.trusted:  # a worker that leaves properly drains before
                members.append(left)
        if members:
            pools[pool] = tuple(sorted(members, key=lambda one: one.beat.replica))
    models = _by_name(pools, lambda beat: {beat.model: ""})
    adapters = _by_name(pools, Heartbeat.adapters_by_name)
    unconfirmed_s = 0.0 if EXPECTED in dark else passed_s
    still = {
        pool: (names, silent_s + unconfirmed_s)
        for pool, (names, silent_s) in last.expected.items()
        if silent_s + unconfirmed_s <= GRACE_S
    }
    confirmed = {pool: (names, 0.0) for pool, names in (expected or {}).items()}
    _expect(still | confirmed, models, adapters)
    return Fleet(pools, models, adapters, still | confirmed)


def _expect(
    expected: Mapping[str, tuple[Sequence[str], float]],
    models: dict[str, tuple[Target, ...]],
    adapters: dict[str, tuple[Target, ...]],
) -> None:
    """Marks the targets of expected pools, and adds those that no replica serves now."""
    for pool, (names, _) in expected.items():
        for name in names:
            found = adapters if name in adapters and name not in models else models
            targets = found.get(name, ())
            marked = tuple(
                replace(target, expected=True) if target.pool == pool else target
                for target in targets
            )
            if all(target.pool != pool for target in targets):
                asleep = Target(pool, name, "", "", (), (), (), BYTES_PER_TOKEN, expected=True)
                marked = (*targets, asleep)
            found[name] = marked


def _by_name(
    pools: Mapping[str, tuple[Member, ...]],
    names: Callable[[Heartbeat], dict[str, str]],
) -> dict[str, tuple[Target, ...]]:
    """The targets by each of the replicas' `names`, which have adapters' keys: one per pool and
    model."""
    found: dict[str, list[Target]] = {}
    for pool, members in pools.items():
        keys = [names(member.beat) for member in members]
        by_model: dict[str, list[int]] = {}  # the members' numbers
        for number, member in enumerate(members):
            by_model.setdefault(member.beat.model, []).append(number)
        for model, numbers in sorted(by_model.items()):
            alike: dict[tuple[int, ...], Target] = {}  # hundreds of adapters have few sets
            for name, serving, key in _served(numbers, keys):
                if (base := alike.get(serving)) is None:
                    base = alike[serving] = _target(pool, model, members, serving)
                target = base if name == model else _adapted(base, name, key)
                found.setdefault(name, []).append(target)
    return {name: tuple(targets) for name, targets in found.items()}


def _served(
    numbers: Sequence[int], keys: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Each name, by name, with the members of `numbers` that serve it, and the key that most of
    them have: while a name's weights are replaced there are two."""
    first = keys[numbers[0]]
    if all(keys[number] == first for number in numbers):  # the usual case, and many times as fast
        every = tuple(numbers)
        for name, key in sorted(first.items()):
            yield name, every, key
        return
    serving: dict[str, dict[int, str]] = {}
    for number in numbers:
        for name, key in keys[number].items():
            serving.setdefault(name, {})[number] = key
    for name, by_number in sorted(serving.items()):
        counts = Counter(by_number.values()).items()
        yield name, tuple(by_number), max(counts, key=lambda each: (each[1], each[0]))[0]


def _adapted(base: Target, name: str, key: str) -> Target:
    """The target of an adapter that the same members serve; `replace` takes twice as long."""
    return Target(
        base.pool,
        base.model,
        name,
        key,
        base.members,
        base.trusted,
        base.foreign,
        base.bytes_per_token,
        base.image_rule,
        (name,) if base.narrowed else (),
    )


def _target(pool: str, model: str, members: tuple[Member, ...], serving: Collection[int]) -> Target:
    """The target of the `serving` members, by their numbers; `narrowed` if these are not all of the
    model."""
    chosen = tuple(members[number] for number in serving)
    by_all = len(chosen) == sum(member.beat.model == model for member in members)
    return Target(
        pool=pool,
        model=model,
        adapter="",
        adapter_key="",
        members=chosen,
        trusted=tuple(member for member in chosen if member.trusted),
        foreign=tuple(m.beat.replica for n, m in enumerate(members) if n not in serving),
        bytes_per_token=fmean(member.beat.bytes_per_token for member in chosen),
        image_rule=next(filter(None, (m.beat.image_rule for m in chosen)), None),
        narrowed=() if by_all else (model,),
    )
