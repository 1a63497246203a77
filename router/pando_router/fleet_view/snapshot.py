"""`Fleet`: the replicas as this router last knew them, an immutable snapshot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pando_fleet.images.rule import ImageRule
from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.replica import Heartbeat, ReplicaState

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
