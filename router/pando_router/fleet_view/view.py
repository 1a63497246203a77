"""The fleet as this router last knew it: refreshed in the background, kept while Redis is away.

Requests read `view.fleet`, an immutable snapshot, and never wait for it. `advance` makes the next
snapshot from the last one and what was heard meanwhile; it is pure.

A replica lives while it gives signs of life, of whatever kind: a heartbeat, an answer to one of
this router's health checks, an answer to a request. A silence that all share says nothing of any of
them: while Redis is away or refuses writes no time passes here, and the checks alone decide.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import itemgetter
from statistics import fmean
from time import monotonic

from pando_fleet.records.expected import ExpectedPools
from pando_fleet.redis.client import FleetError
from pando_fleet.redis.keys import EXPECTED, POOLS
from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_router.configuration.live import Live
from pando_router.fleet_view.redis_state import RedisState, RedisStates
from pando_router.fleet_view.rounds import Rounds

REFRESH_S = 0.2
READ_TIMEOUT_S = 2.0  # then Redis counts as away
CHECK_WRITES_S = 1.0  # how often it is seen whether Redis takes them

# A replica without a sign of life is still trusted for so long after it is called lost, and a pool
# that stopped being expected is still expected: a Redis that comes back empty or with old
# heartbeats means neither dead workers nor deleted pools.
GRACE_S = 5.0

LOST_AFTER_S = FRESH_MS / 1000

LOOKS_READY_S = LOST_AFTER_S + GRACE_S
"""A replica that has died is placed on for so long."""


class MemberState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STALLED = "stalled"  # its engine has said nothing for some seconds
    WARMING = "warming"  # could serve, but is first given the hottest prefixes
    DRAINING = "draining"
    LOST = "lost"  # was heard of too long ago, or not at all by the Redis of today


_COMING = frozenset((MemberState.STARTING, MemberState.WARMING, MemberState.STALLED))
BYTES_PER_TOKEN = 4.0  # until a replica has measured


@dataclass(frozen=True, slots=True)
class Member:
    """One replica as last known."""

    beat: Heartbeat
    age_ms: int  # of that heartbeat
    silent_s: float  # since its last sign of life, not counting time in which none could be heard
    withheld: str = ""  # the mark that keeps it from placement, as Replica.withheld

    @property
    def beats(self) -> bool:
        """Whether its heartbeats come."""
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
    members: tuple[Member, ...]
    trusted: tuple[Member, ...]  # of them
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


@dataclass(frozen=True, slots=True)
class Fleet:
    """A snapshot: pools with their members, and by model where a request for it may go."""

    pools: Mapping[str, tuple[Member, ...]] = field(default_factory=dict)
    models: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    adapters: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    # Models by pools that exist without replicas, too, and how long ago that was said.
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
    passed_s: float,
    heard: Mapping[str, Sequence[Replica]],
    expected: Mapping[str, Sequence[str]] | None = None,
    *,
    dark: Set[str] = frozenset(),
    answered: Set[str] = frozenset(),
) -> Fleet:
    """The snapshot `passed_s` after the last one.

    Args:
        heard: by pool the replicas that were heard of.
        expected: models by pools that exist without replicas, too.
        dark: pools of which not all could be heard, so that nobody's silence counts there; EXPECTED
            where it was not said which pools are expected.
        answered: incarnations that have answered this router meanwhile.
    """
    owners = {
        replica.beat.url: replica.beat.incarnation
        for replicas in heard.values()
        for replica in replicas
        if replica.age_ms <= FRESH_MS
    }

    def is_alive(beat: Heartbeat) -> bool:
        """Whether it has answered; where it has died, another one may at its address."""
        is_there = owners.get(beat.url, beat.incarnation) == beat.incarnation
        return is_there and beat.incarnation in answered

    pools: dict[str, tuple[Member, ...]] = {}
    for pool in sorted(last.pools.keys() | heard.keys()):
        unheard_s = 0.0 if pool in dark else passed_s
        before = {member.beat.replica: member for member in last.pools.get(pool, ())}
        members = []
        for replica in heard.get(pool, ()):
            beat, silent_s = replica.beat, replica.age_ms / 1000
            known = before.pop(beat.replica, None)
            if is_alive(beat):
                silent_s = 0.0
            elif known is not None and known.beat.incarnation == beat.incarnation:
                silent_s = min(silent_s, known.silent_s + unheard_s)
            members.append(Member(beat, replica.age_ms, silent_s, replica.withheld))
        for gone in before.values():
            silent_s = 0.0 if is_alive(gone.beat) else gone.silent_s + unheard_s
            age_ms = gone.age_ms + int(1000 * passed_s)
            left = Member(gone.beat, age_ms, silent_s, gone.withheld)
            if pool in dark or left.trusted:  # a worker that left was draining before
                members.append(left)
        if members:
            pools[pool] = tuple(sorted(members, key=lambda member: member.beat.replica))
    models = _by_name(pools, lambda beat: (beat.model,))
    adapters = _by_name(pools, lambda beat: beat.adapters)
    unsaid_s = 0.0 if EXPECTED in dark else passed_s
    still = {
        pool: (names, silent_s + unsaid_s)
        for pool, (names, silent_s) in last.expected.items()
        if silent_s + unsaid_s <= GRACE_S
    }
    said = {pool: (names, 0.0) for pool, names in (expected or {}).items()}
    _expect(still | said, models, adapters)
    return Fleet(pools, models, adapters, still | said)


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


def _by_name(
    pools: Mapping[str, tuple[Member, ...]],
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
                trusted=tuple(member for member in serving if member.trusted),
                foreign=tuple(m.beat.replica for m in members if m.beat.replica not in replicas),
                bytes_per_token=fmean(member.beat.bytes_per_token for member in serving),
                narrowed=() if by_all else (name,),
            )
            found.setdefault(name, []).append(target)
    return {name: tuple(targets) for name, targets in found.items()}


class FleetView:
    """Keeps `fleet` up to date from `run`; `redis` is how Redis serves each pool."""

    def __init__(
        self,
        registry: Registry,
        expected: ExpectedPools,
        live: Live,
        answered: set[str],
        own: Callable[[], Mapping[str, Sequence[Replica]]] = dict,
    ) -> None:
        """Pools are expected by Redis, and by the settings with their model.

        Args:
            answered: incarnations that have answered this router since it was emptied here.
            own: by pool the replicas that this router itself looks after.
        """
        self._registry = registry
        self._expected = expected
        self._live = live
        self._answered = answered
        self._own = own
        self._asking = Rounds(self._ask)  # by pool, POOLS and EXPECTED
        self._heard: dict[str, list[Replica]] = {}  # since the last snapshot
        self._named: set[str] = set()  # pools, as Redis listed them last
        self._said: dict[str, tuple[str, ...]] | None = None  # since the last snapshot
        self._check_at: dict[str, float] = {}  # monotonic, by pool
        self._advanced_at = 0.0  # monotonic, of the last snapshot
        self.fleet = Fleet()
        self.redis = RedisStates()
        self.is_known = False  # whether Redis has told the fleet at least once

    @property
    def redis_up(self) -> bool:
        """Whether Redis answers, at least for some pools."""
        return self.redis.any_answers(self.fleet.pools or (POOLS,))

    def is_up(self, pool: str) -> bool:
        """Whether Redis answers for this pool, and takes its leases."""
        return self.redis.of(pool) in (RedisState.UP, RedisState.FULL)

    async def run(self, refreshed: Callable[[set[str]], None]) -> None:
        """Refreshes until cancelled; tells `refreshed` the incarnations known each time."""
        try:
            while True:
                await asyncio.sleep(REFRESH_S)
                await self.refresh()
                members = (member for pool in self.fleet.pools.values() for member in pool)
                refreshed({member.beat.incarnation for member in members})
        finally:
            await self._asking.close()

    async def refresh(self) -> None:
        """Asks for all pools, and makes a snapshot of what was said in time; what is late is in a
        later one. So a server that hangs delays its own pools alone."""
        asked = self._pools()
        patience_s = REFRESH_S if self._advanced_at else READ_TIMEOUT_S
        await self._asking.begin({POOLS, EXPECTED} | asked, patience_s)
        if new := self._pools() - asked:
            await self._asking.begin(new, patience_s)
        self._advance()
        self.redis.report()

    def _pools(self) -> set[str]:
        pools = self._named | self.fleet.pools.keys()
        if self.redis.of(POOLS) is not RedisState.UP:  # one of these may have woken
            pools |= self.fleet.expected.keys()
        return pools

    async def _ask(self, name: str) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                if name == POOLS:
                    await self._read_names()
                elif name == EXPECTED:
                    await self._read_expected()
                else:
                    await self._read(name)
        except (FleetError, TimeoutError) as error:
            self.redis.failed(name, error)

    async def _read_names(self) -> None:
        self._named, self.is_known = set(await self._registry.pools()), True
        self.redis.works(POOLS)

    async def _read_expected(self) -> None:
        self._said = await self._expected.read()
        self.redis.works(EXPECTED)

    async def _read(self, pool: str) -> None:
        asked_at, limit_s = monotonic(), self._live.settings.placement_timeout
        self._heard[pool] = await self._registry.replicas(pool)
        took_s, is_away = monotonic() - asked_at, self.redis.of(pool) is RedisState.AWAY
        if is_away and took_s > limit_s:  # or else the next request would wait in vain
            slow = f"an answer takes {took_s:.2f} s, but placement_timeout is {limit_s} s"
            raise TimeoutError(slow)
        if is_away or monotonic() >= self._check_at.get(pool, 0.0):
            self._check_at[pool] = monotonic() + CHECK_WRITES_S
            await self._registry.check_writes(pool)
            self.redis.works(pool)

    def _advance(self) -> None:
        now = monotonic()
        # Where this router stood still, nobody's silence was heard.
        passed_s = min(now - self._advanced_at, READ_TIMEOUT_S) if self._advanced_at else 0.0
        heard, self._heard = self._heard, {}
        said, self._said = self._said, None
        own = self._own()
        pools = self._pools() | own.keys()
        dark = {
            pool for pool in pools if pool not in heard or self.redis.of(pool) is not RedisState.UP
        }
        if said is None:
            dark.add(EXPECTED)
        by_settings = self._live.settings.expected_pools.items()
        self.fleet = advance(
            self.fleet,
            passed_s,
            {pool: _freshest(heard.get(pool, ()), own.get(pool, ())) for pool in pools},
            (said or {}) | {pool: (model,) for pool, model in by_settings},
            dark=dark,
            answered=self._answered,
        )
        self._answered.clear()
        self._advanced_at = now
        known = self._pools()
        self.redis.keep_only(known | {POOLS, EXPECTED})
        for gone in self._check_at.keys() - known:
            del self._check_at[gone]


def _freshest(heard: Sequence[Replica], own: Sequence[Replica]) -> Sequence[Replica]:
    """What was heard of replicas, and of those of them that are silent what this router found."""
    if not own:
        return heard
    found = {replica.beat.replica: replica for replica in own}
    beating = {r.beat.replica: r for r in heard if r.age_ms <= FRESH_MS}
    return tuple(({r.beat.replica: r for r in heard} | found | beating).values())
