"""`Keeper`: makes Redis agree with what one router knows of its leases, and ends dead ones' leases.

Routers send heartbeats, the first one ahead of their first placement. When a router falls silent,
the others end its leases; unless all were silent, because then Redis stood still. A router that
Redis does not know, because it was thought dead or because Redis lost keys, renews all of its
leases, and they are there again. Where answers or writes were lost, Redis may also have leases that
nobody holds: a placement ran after its router had given up, or a release was lost. Then the router
reads the leases that Redis has in its name and releases those that it does not know; several times,
because a call on a broken connection may run late.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from pando_fleet.placement.placer import Placer
from pando_fleet.redis.client import FleetError
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import BeatRouter, Reap
from pando_fleet.redis.scripts import Clock, time_arg
from pando_fleet.redis.wire import Line, WireScript
from pando_fleet.redis.wire.call import Reply, pack
from pando_fleet.redis.wire.wire import answer_to

BEAT_S = 0.5
"""Between two calls of `look`."""

IDLE_S = 10.0
"""A router that has placed nothing in the pool for so long, and has no lease there, leaves it."""

SWEEPS = 3
"""Times that a router's leases are read after a doubt: over more than a second, in which the calls
of a connection that it gave up have run."""

SWEPT = 1000
"""Leases looked at in one call."""

REPAIR_S = 1.0
"""For reading and ending leases in one look, so that heartbeats go on; the next look goes on."""

_BEGIN = b"0"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found to do."""

    renewed: bool = False  # all leases, as Redis may have lost some
    unknown: int = 0  # leases that nobody held
    reaped: int = 0  # leases of dead routers
    dead: tuple[str, ...] = ()  # routers


class Keeper:
    """Of one router in one pool. The id of each lease that it places must begin with its name, a
    short one of letters and digits, and a dash."""

    def __init__(
        self, wire: Line, placer: Placer, pool: str, router: str, clock: Clock | None = None
    ) -> None:
        """`wire` is the placer's, where answers come in the order of the calls."""
        self._wire = wire
        self._placer = placer
        self._keys = PoolKeys(pool)
        self._router = router
        self._clock = clock
        self._beat = WireScript(wire, BeatRouter)
        self._reap = WireScript(wire, Reap)
        self._is_known = False  # to Redis, as far as this router knows
        self._busy_s = -inf
        self._sweeps_left = 0
        self._cursors: dict[str, bytes] = {}  # by router, where reading its leases goes on
        placer.woken = self._announce

    async def look(self, now_s: float, lease_ms: int) -> Seen:
        """A heartbeat, and what follows from it; leases last `lease_ms` from now on.

        Call it every BEAT_S. Raises FleetUnavailable, FleetError; then leases are renewed all the
        same, once they can be written.
        """
        placer = self._placer
        if not self._is_busy(now_s):
            await self.leave()
            return Seen()
        placer.renew(now_s, lease_ms)
        self._is_known = True
        is_unknown, *dead = await self._beat(self._beat_call())
        is_unsure = bool(is_unknown) or (placer.in_doubt and not self._sweeps_left)
        if is_unsure:
            placer.in_doubt = False
            placer.renew(now_s, lease_ms, every=True)
            self._sweeps_left = SWEEPS
        names = [name.decode() for name in dead]
        self._cursors = {
            name: at for name, at in self._cursors.items() if name in (self._router, *names)
        }
        until_s = asyncio.get_running_loop().time() + REPAIR_S
        unknown = await self._sweep(until_s) if self._sweeps_left else 0
        reaped = sum([await self._end_leases_of(name, until_s) for name in names])
        return Seen(is_unsure, unknown, reaped, tuple(names))

    async def leave(self) -> None:
        """Says goodbye, so that nobody takes this router for dead. Raises as `look`."""
        if self._is_known:
            self._is_known = False  # at once: who asks meanwhile announces this router anew
            try:
                await self._call("ZREM", self._keys.routers, self._router)
            except FleetError:
                self._is_known = True
                raise

    def _announce(self) -> None:
        """Others end this router's leases should it die before it looks.

        Redis may have older leases in its name, from before it left.
        """
        if not self._is_known:
            self._is_known = True
            self._sweeps_left = SWEEPS
            with suppress(FleetError):  # then it is unknown when it looks
                self._beat.send(self._beat_call(), (), lambda reply: None)

    def _is_busy(self, now_s: float) -> bool:
        placer = self._placer
        is_quiet, placer.is_quiet = placer.is_quiet, True
        if placer.open or placer.in_doubt or self._sweeps_left or not is_quiet:
            self._busy_s = now_s
        return now_s - self._busy_s < IDLE_S

    def _beat_call(self) -> BeatRouter:
        leases, parts, loads = self._keys.leases
        return BeatRouter(
            routers=self._keys.routers,
            leases=leases,
            parts=parts,
            loads=loads,
            now=time_arg(self._clock),
            router=self._router,
        )

    async def _sweep(self, until_s: float) -> int:
        """Releases the leases that Redis has in this router's name and nobody holds; how many."""
        leases, found = self._keys.leases[0], 0
        loop, mine = asyncio.get_running_loop(), f"{self._router}-*"
        while True:
            cursor = self._cursors.pop(self._router, _BEGIN)
            cursor, rows = await self._call("ZSCAN", leases, cursor, "MATCH", mine, "COUNT", SWEPT)
            found += await self._release_unknown([row.decode() for row in rows[::2]])
            if cursor == _BEGIN:
                self._sweeps_left -= 1
                return found
            self._cursors[self._router] = cursor
            if loop.time() >= until_s:
                return found

    async def _release_unknown(self, leases: list[str]) -> int:
        """Of those that Redis has listed.

        The placer knows what it placed before that, because answers come in order. What it does not
        know may have been released since then; Redis is asked again behind that release.
        """
        unknown = self._placer.unknown(leases)
        found = 0
        for first in range(0, len(unknown), SWEPT):
            some = unknown[first : first + SWEPT]
            self._placer.write()
            ends = await self._call("ZMSCORE", self._keys.leases[0], *some)
            left = [lease for lease, end in zip(some, ends, strict=True) if end is not None]
            found += self._placer.release_unknown(left)
        return found

    async def _end_leases_of(self, router: str, until_s: float) -> int:
        leases, parts, loads = self._keys.leases
        loop, reaped = asyncio.get_running_loop(), 0
        while loop.time() < until_s:
            said = await self._reap(
                Reap(
                    routers=self._keys.routers,
                    leases=leases,
                    parts=parts,
                    loads=loads,
                    queues=self._keys.queues,
                    now=time_arg(self._clock),
                    router=router,
                    cursor=self._cursors.pop(router, _BEGIN).decode(),
                )
            )
            if said is None:
                break
            cursor, ended = said
            reaped += ended
            if cursor == _BEGIN:
                break
            self._cursors[router] = cursor
        return reaped

    async def _call(self, command: str, key: str, *arguments: str | bytes | int) -> Any:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._wire.send(key, pack(command, key, *arguments), answer_to(reply))
        return await reply
