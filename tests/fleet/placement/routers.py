"""Routers in a world with the test's clock, and their requests as placement sees them."""

from collections.abc import Callable
from typing import Any

from pando_fleet.placement.keeper import BEAT_S, Keeper, Seen
from pando_fleet.placement.placer import Placement, Placer
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.wire import Wire
from pando_fleet.redis.wire.call import Answer, Reply
from tests.fleet.world import POOL, World

LEASE_MS = 30_000
BEAT_MS = int(1000 * BEAT_S)
KEYS = PoolKeys(POOL)
LEASES, PARTS, LOADS = KEYS.leases


class SlowLine:
    """Delays the answer to ZSCAN until after `meanwhile`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.flush = wire.flush
        self.meanwhile: Callable[[], None] = lambda: None

    def send(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        def slow_answer(reply: Reply) -> None:
            self.meanwhile()
            answer(reply)

        self._wire.send(key, packed, slow_answer if b"ZSCAN" in packed else answer, script)


class Router:
    """One router in a world with the test's clock."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self.line = SlowLine(world.wire)
        self.placer = Placer(self.line, POOL, world.clock, every_s=None)
        self.keeper = Keeper(self.line, self.placer, POOL, name, world.clock)
        self._number = 0

    async def place(self, **fields: Any) -> Placement:
        self._number += 1
        lease = f"{self.name}-{self._number}"
        ask = self._world.ask(lease=lease, lease_ms=LEASE_MS, **fields)
        placed = await self.placer.place(ask)
        await self.placer.flush()
        return placed

    async def look(self) -> Seen:
        seen = await self.keeper.look(self._world.now_ms / 1000, LEASE_MS)
        await self.placer.flush()
        return seen


async def pass_time(world: World, ms: int, *routers: Router) -> None:
    """Advance the clock while these routers and replica "a" live."""
    for _ in range(0, ms, BEAT_MS):
        world.now_ms += BEAT_MS
        await world.beat("a")
        for router in routers:
            await router.look()


async def truth(world: World) -> tuple[float, float, float]:
    """Requests at replica "a", waiting ones, and their work, as placement sees them."""
    terms = (await world.terms())["a"]
    return terms.outstanding, terms.queue, terms.backlog_tokens
