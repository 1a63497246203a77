"""The fleet as this router last saw it: refreshed in the background, kept while Redis is away.

Requests read `view.fleet`, an immutable snapshot, and never wait for it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from time import monotonic

from pando_fleet.records.expected import ExpectedPools
from pando_fleet.redis.client import FleetError
from pando_fleet.redis.keys import EXPECTED, POOLS
from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Replica
from pando_router.configuration.live import Live
from pando_router.fleet_view.advance import advance
from pando_router.fleet_view.redis_state import RedisState, RedisStates
from pando_router.fleet_view.rounds import Rounds
from pando_router.fleet_view.snapshot import Fleet

REFRESH_S = 0.2
READ_TIMEOUT_S = 2.0  # then Redis counts as away
CHECK_WRITES_S = 1.0  # between two checks whether Redis takes writes


class FleetView:
    """`run` keeps `fleet` up to date; `redis` is Redis's state by pool."""

    def __init__(
        self,
        registry: Registry,
        expected: ExpectedPools,
        live: Live,
        answered: set[str],
        recovered: Set[str],
        own: Callable[[], Mapping[str, Sequence[Replica]]] = dict,
    ) -> None:
        """Redis and the settings define the expected pools.

        Args:
            answered: incarnations that answered this router; emptied at each snapshot.
            recovered: incarnations that stalled and are ready again, see `advance`.
            own: by pool, the replicas that this router itself probes.
        """
        self._registry = registry
        self._expected = expected
        self._live = live
        self._answered = answered
        self._recovered = recovered
        self._own = own
        self._reading = Rounds(self._ask)  # by pool, POOLS and EXPECTED
        self._rows_read: dict[str, list[Replica]] = {}  # since the last snapshot
        self._named: set[str] = set()  # pools, as Redis last listed them
        self._expected_read: dict[str, tuple[str, ...]] | None = None  # since the last snapshot
        self._check_at: dict[str, float] = {}  # monotonic, by pool
        self._advanced_at = 0.0  # monotonic, of the last snapshot
        self.fleet = Fleet()
        self.redis = RedisStates()
        self.is_known = False  # whether the fleet was read from Redis at least once

    @property
    def redis_up(self) -> bool:
        """Whether Redis answers, at least for some pools."""
        return self.redis.any_answers(self.fleet.pools or (POOLS,))

    def is_up(self, pool: str) -> bool:
        """Whether Redis answers for this pool and takes its leases."""
        return self.redis.of(pool) in (RedisState.UP, RedisState.FULL)

    async def run(self, refreshed: Callable[[set[str]], None]) -> None:
        """Refreshes until cancelled; calls `refreshed` with the known incarnations each time."""
        try:
            while True:
                await asyncio.sleep(REFRESH_S)
                await self.refresh()
                members = (member for pool in self.fleet.pools.values() for member in pool)
                refreshed({member.beat.incarnation for member in members})
        finally:
            await self._reading.close()

    async def refresh(self) -> None:
        """Reads all pools, and makes a snapshot of those that arrived in time; late ones go into a
        later snapshot. So a server that hangs delays only its own pools."""
        asked = self._pools()
        patience_s = REFRESH_S if self._advanced_at else READ_TIMEOUT_S
        await self._reading.begin({POOLS, EXPECTED} | asked, patience_s)
        if new := self._pools() - asked:
            await self._reading.begin(new, patience_s)
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
        self._expected_read = await self._expected.read()
        self.redis.works(EXPECTED)

    async def _read(self, pool: str) -> None:
        started, limit_s = monotonic(), self._live.settings.placement_timeout
        self._rows_read[pool] = await self._registry.replicas(pool)
        took_s, is_away = monotonic() - started, self.redis.of(pool) is RedisState.AWAY
        if is_away and took_s > limit_s:  # else the next request would wait in vain
            slow = f"an answer takes {took_s:.2f} s, but placement_timeout is {limit_s} s"
            raise TimeoutError(slow)
        if is_away or monotonic() >= self._check_at.get(pool, 0.0):
            self._check_at[pool] = monotonic() + CHECK_WRITES_S
            await self._registry.check_writes(pool)
            self.redis.works(pool)

    def _advance(self) -> None:
        now = monotonic()
        # A pause of this router itself must not count as the replicas' silence.
        passed_s = min(now - self._advanced_at, READ_TIMEOUT_S) if self._advanced_at else 0.0
        heard, self._rows_read = self._rows_read, {}
        confirmed, self._expected_read = self._expected_read, None
        own = self._own()
        pools = self._pools() | own.keys()
        dark = {
            pool for pool in pools if pool not in heard or self.redis.of(pool) is not RedisState.UP
        }
        if confirmed is None:
            dark.add(EXPECTED)
        by_settings = self._live.settings.expected_pools.items()
        self.fleet = advance(
            self.fleet,
            passed_s,
            {pool: _freshest(heard.get(pool, ()), own.get(pool, ())) for pool in pools},
            (confirmed or {}) | {pool: (model,) for pool, model in by_settings},
            dark=dark,
            answered=self._answered,
            recovered=self._recovered,
        )
        self._answered.clear()
        self._advanced_at = now
        known = self._pools()
        self.redis.keep_only(known | {POOLS, EXPECTED})
        for gone in self._check_at.keys() - known:
            del self._check_at[gone]


def _freshest(heard: Sequence[Replica], own: Sequence[Replica]) -> Sequence[Replica]:
    """The replicas read from Redis; those whose heartbeats are old as this router found them."""
    if not own:
        return heard
    found = {replica.beat.replica: replica for replica in own}
    beating = {r.beat.replica: r for r in heard if r.age_ms <= FRESH_MS}
    return tuple(({r.beat.replica: r for r in heard} | found | beating).values())
