"""The fleet as this router last knew it: refreshed in the background, kept while Redis is away.

Requests read `view.fleet`, an immutable snapshot, and never wait for it. `advance` makes the next
snapshot from the last one and what the registry says; it is pure.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import itemgetter
from statistics import fmean
from time import monotonic

from pando_fleet.client import FleetError
from pando_fleet.expected import ExpectedPools
from pando_fleet.layout.constants import FRESH_MS
from pando_fleet.registry import Registry
from pando_fleet.replica import Heartbeat, Replica, ReplicaState
from pando_router.calm import Calm
from pando_router.live import Live

REFRESH_S = 0.2
READ_TIMEOUT_S = 2.0  # then Redis counts as away

# A replica that the registry stopped vouching for is still trusted for so long, and a pool that
# stopped being expected is still expected, counted in time with Redis present: one that comes back
# empty or with old heartbeats means neither dead workers nor deleted pools.
GRACE_S = 5.0

LOOKS_READY_S = FRESH_MS / 1000 + GRACE_S
"""A replica that has died is placed on for so long."""

logger = logging.getLogger("pando.router")


class MemberState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    WARMING = "warming"  # could serve, but is first given the hottest prefixes
    DRAINING = "draining"
    LOST = "lost"  # was heard of too long ago, or not at all by the Redis of today


_COMING = frozenset((MemberState.STARTING, MemberState.WARMING))
BYTES_PER_TOKEN = 4.0  # until a replica has measured


@dataclass(frozen=True, slots=True)
class Member:
    """One replica as last known."""

    beat: Heartbeat
    age_ms: int  # when last read
    fresh_at: float  # in seconds of Redis's presence, as Fleet.present_s
    withheld: str = ""  # the mark that keeps it from placement, as Replica.withheld

    @property
    def state(self) -> MemberState:
        if self.age_ms > FRESH_MS:
            return MemberState.LOST
        if self.withheld and self.beat.state is ReplicaState.READY:
            return MemberState.WARMING if self.withheld == "warm" else MemberState.DRAINING
        return MemberState(self.beat.state.value)


@dataclass(frozen=True, slots=True)
class Target:
    """The replicas of one pool that serve one model, or one adapter of it."""

    pool: str
    model: str
    adapter: str  # empty: the model itself
    members: tuple[Member, ...]
    trusted: tuple[Member, ...]  # ready when last heard of, and that was within the grace
    foreign: tuple[str, ...]  # replicas of the pool that serve something else
    bytes_per_token: float  # prompt bytes a prompt token, mean over the replicas
    narrowed: tuple[str, ...] = ()  # by what the pool's other replicas of the model do not serve
    expected: bool = False  # the pool exists and will have replicas for this, whatever it has now

    @property
    def is_coming(self) -> bool:
        """Whether there will be a ready replica, as far as is known."""
        return self.expected or any(member.state in _COMING for member in self.members)

    def at(self, path: str) -> "Target | None":
        """Those that serve `path`, None where nobody does."""
        return self.kept(lambda member: member.beat.serves(path), path)

    def kept(self, keep: Callable[[Member], bool], why: str) -> "Target | None":
        """Some of the members, None where it is none; the rest count as serving something else.

        `why` names what only these serve.
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


_NOTHING: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True, slots=True)
class Fleet:
    """A snapshot: pools with their members, and by model where a request for it may go."""

    present_s: float = 0.0  # how long Redis was there while this router looked
    pools: Mapping[str, tuple[Member, ...]] = field(default_factory=dict)
    models: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    adapters: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    # Models by pools that exist without replicas, too, and when that was said, as `present_s`.
    expected: Mapping[str, tuple[Sequence[str], float]] = field(default_factory=dict)
    _serving: dict[tuple[str, str], tuple[Target, ...]] = field(default_factory=dict)  # as found

    def targets(self, name: str) -> tuple[Target, ...] | None:
        """Who serves a model or an adapter of this name, None where nobody does."""
        return self.models.get(name) or self.adapters.get(name)

    def serving(self, name: str, path: str) -> tuple[Target, ...] | None:
        """Those of `targets(name)` that serve one of the router's paths, maybe none."""
        found = self._serving.get((name, path))
        if found is None and (targets := self.targets(name)) is not None:
            found = tuple(there for target in targets if (there := target.at(path)))
            self._serving[name, path] = found
        return found

    @property
    def ready(self) -> bool:
        """Whether any replica can take requests, or will for one that waits, as far as is known."""
        return any(
            target.trusted or target.expected
            for targets in self.models.values()
            for target in targets
        )


def advance(
    last: Fleet,
    heard: Mapping[str, Sequence[Replica]],
    elapsed_s: float,
    expected: Mapping[str, Sequence[str]] = _NOTHING,
) -> Fleet:
    """The snapshot after the registry said `heard`, `elapsed_s` after it spoke last.

    `expected` are models by pools that exist without replicas, too.
    """
    now = last.present_s + elapsed_s
    pools: dict[str, tuple[Member, ...]] = {}
    for pool in sorted(last.pools.keys() | heard.keys()):
        before = {member.beat.replica: member for member in last.pools.get(pool, ())}
        members = []
        for replica in heard.get(pool, ()):
            known = before.pop(replica.beat.replica, None)
            if replica.age_ms <= FRESH_MS:
                fresh_at = now
            elif known is not None and known.beat.incarnation == replica.beat.incarnation:
                fresh_at = known.fresh_at
            else:
                fresh_at = now - replica.age_ms / 1000
            members.append(Member(replica.beat, replica.age_ms, fresh_at, replica.withheld))
        # What the registry no longer lists: a worker that left was draining before.
        members += [
            Member(gone.beat, FRESH_MS + 1, gone.fresh_at, gone.withheld)
            for gone in before.values()
            if _trusted(gone, now)
        ]
        if members:
            pools[pool] = tuple(sorted(members, key=lambda member: member.beat.replica))
    models = _by_name(pools, now, lambda beat: (beat.model,))
    adapters = _by_name(pools, now, lambda beat: beat.adapters)
    said = {pool: (names, now) for pool, names in expected.items()}
    recently = {pool: one for pool, one in last.expected.items() if now - one[1] <= GRACE_S}
    _expect(recently | said, models, adapters)
    return Fleet(now, pools, models, adapters, recently | said)


def _expect(
    expected: Mapping[str, tuple[Sequence[str], float]],
    models: dict[str, tuple[Target, ...]],
    adapters: dict[str, tuple[Target, ...]],
) -> None:
    """Marks the targets of expected pools, and adds those that nobody serves now."""
    for pool, (names, _) in expected.items():
        for name in names:
            found = adapters if name in adapters and name not in models else models
            targets = found.get(name, ())
            marked = tuple(
                replace(target, expected=True) if target.pool == pool else target
                for target in targets
            )
            if all(target.pool != pool for target in targets):
                asleep = Target(pool, name, "", (), (), (), BYTES_PER_TOKEN, expected=True)
                marked = (*targets, asleep)
            found[name] = marked


def _trusted(member: Member, now: float) -> bool:
    ready = member.beat.state is ReplicaState.READY and not member.withheld
    return ready and now - member.fresh_at <= GRACE_S


def _by_name(
    pools: Mapping[str, tuple[Member, ...]],
    now: float,
    names: Callable[[Heartbeat], tuple[str, ...]],
) -> dict[str, tuple[Target, ...]]:
    """By each of the `names` that replicas serve under, who does: a target a pool and model."""
    found: dict[str, list[Target]] = {}
    for pool, members in pools.items():
        by_name: dict[tuple[str, str], list[Member]] = {}
        for member in members:
            for name in dict.fromkeys(names(member.beat)):
                by_name.setdefault((name, member.beat.model), []).append(member)
        for (name, model), serving in sorted(by_name.items(), key=itemgetter(0)):
            replicas = {member.beat.replica for member in serving}
            by_all = len(serving) == sum(member.beat.model == model for member in members)
            target = Target(
                pool=pool,
                model=model,
                adapter="" if name == model else name,
                members=tuple(serving),
                trusted=tuple(member for member in serving if _trusted(member, now)),
                foreign=tuple(m.beat.replica for m in members if m.beat.replica not in replicas),
                bytes_per_token=fmean(member.beat.bytes_per_token for member in serving),
                narrowed=() if by_all else (name,),
            )
            found.setdefault(name, []).append(target)
    return {name: tuple(targets) for name, targets in found.items()}


class FleetView:
    """Keeps `fleet` up to date from `run`, and knows whether Redis answers."""

    def __init__(self, registry: Registry, expected: ExpectedPools, live: Live) -> None:
        """Pools are expected by Redis, and by the settings with their model."""
        self._registry = registry
        self._expected = expected
        self._live = live
        self._read_at = 0.0  # monotonic, of the last answer
        self._reads = False  # the last look was answered
        self._answer_s = 0.0  # how long that took, of one question
        self._calm = Calm()
        self._warned = False
        self.fleet = Fleet()
        self.redis_up = False  # until it answered once

    @property
    def is_known(self) -> bool:
        """Whether Redis has told the fleet at least once."""
        return self._read_at > 0

    async def run(self, refreshed: Callable[[set[str]], None]) -> None:
        """Refreshes until cancelled; tells `refreshed` the incarnations known each time."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()
            members = (member for pool in self.fleet.pools.values() for member in pool)
            refreshed({member.beat.incarnation for member in members})

    async def refresh(self) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                heard, expected = await asyncio.gather(self._read(), self._expected.read())
        except (FleetError, TimeoutError) as error:
            self._reads = False
            self.redis_failed(error)
            return
        now = monotonic()
        elapsed_s = now - self._read_at if self._reads else 0.0
        expected |= {pool: (model,) for pool, model in self._live.settings.expected_pools.items()}
        self.fleet = advance(self.fleet, heard, elapsed_s, expected)
        self._read_at, self._reads = now, True
        if not self.redis_up:
            self._comes_back()

    def _comes_back(self) -> None:
        """Once it answers as fast as a placement has to be: else the next request waits in vain."""
        limit_s = self._live.settings.placement_timeout
        if self._answer_s > limit_s:
            slow = f"an answer takes {self._answer_s:.2f} s, but placement_timeout is {limit_s} s"
            self.redis_failed(TimeoutError(slow))
        elif self._calm.answered(self._read_at):
            logger.info("redis answers", extra={"pools": sorted(self.fleet.pools)})
            self.redis_up, self._warned = True, False

    def redis_failed(self, error: Exception) -> None:
        """Redis did not answer, here or to a placement: it is left alone until it comes back."""
        if not self._warned:
            logger.warning("redis is away", extra={"error": str(error) or "no answer in time"})
        self._calm.failed(monotonic())
        self.redis_up, self._warned = False, True

    async def _read(self) -> dict[str, list[Replica]]:
        pools = await self._registry.pools()
        asked_at = monotonic()
        replicas = await asyncio.gather(*(self._registry.replicas(pool) for pool in pools))
        self._answer_s = monotonic() - asked_at
        return dict(zip(pools, replicas, strict=True))
