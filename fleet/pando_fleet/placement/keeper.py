"""`Keeper`: keeps one router's leases in Redis correct, and ends the leases of dead routers.

This half renews and reconciles leases; the other half is `lua/placement/lease_ops.lua`, which
changes and expires them in Redis. Routers send heartbeats, the first one before their first
placement. When a router falls silent, the others end its leases (`lua/placement/router_beat.lua`
finds it, `lua/placement/router_reap.lua` ends them), unless all were silent, because then Redis
hung. A router that Redis does not know, because it was thought dead or because Redis lost keys,
renews all of its leases, which restores them. If answers or writes were lost, Redis may also have
leases that nobody holds: a placement ran after its router had given up, or a release was lost. Then
the router reads the leases that Redis has under its name and releases those that it does not know;
several times, because a call on a broken connection may run late.
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
"""The interval of calls of `look`."""

IDLE_S = 10.0
"""After this time without placements and leases in the pool, a router leaves it."""

SWEEPS = 3
"""How often a router's leases are read after a doubt: over more than a second, in which calls on an
abandoned connection have run."""

SWEPT = 1000
"""Leases read per call."""

REPAIR_S = 1.0
"""For reading and ending leases in one look, so that heartbeats continue; the next look resumes."""

_BEGIN = b"0"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found and did."""

    renewed: bool = False  # all leases, because Redis may have lost some
    unknown: int = 0  # leases that nobody held
    reaped: int = 0  # leases of dead routers
    dead: tuple[str, ...] = ()  # routers


class Keeper:
    """Keeps one router's leases in one pool. The id of each of its leases must begin with its name,
    a short one of letters and digits, and a dash."""

    def __init__(
        self, wire: Line, placer: Placer, pool: str, router: str, clock: Clock | None = None
    ) -> None:
        """`wire` must be the placer's, so that answers arrive in the order of the calls."""
        self._wire = wire
        self._placer = placer
        self._keys = PoolKeys(pool)
        self._router = router
        self._clock = clock
        self._beat = WireScript(wire, BeatRouter)
        self._reap = WireScript(wire, Reap)
        self._is_known = False  # whether Redis knows this router, as far as it can tell
        self._busy_s = -inf
        self._sweeps_left = 0
        self._cursors: dict[str, bytes] = {}  # by dead router, where reading its leases continues
        placer.woken = self._announce

    async def look(self, now_s: float, lease_ms: int) -> Seen:
        """Sends a heartbeat, and acts on the answer; leases last `lease_ms` from now on.

        Call it every BEAT_S. Raises FleetUnavailable, FleetError; even then, leases are renewed as
        soon as Redis accepts writes.
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
        """Leaves the pool, so that nobody takes this router for dead. Raises like `look`."""
        if self._is_known:
            self._is_known = False  # at once, so that a new placement announces it again
            try:
                await self._call("ZREM", self._keys.routers, self._router)
            except FleetError:
                self._is_known = True
                raise

    def _announce(self) -> None:
        """Announces this router, so that others end its leases if it dies before its first look.

        Redis may have older leases under its name, from before it left.
        """
        if not self._is_known:
            self._is_known = True
            self._sweeps_left = SWEEPS
            with suppress(FleetError):  # then it is unknown at its next look
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
        """Releases leases that Redis has under this router's name but nobody holds; their
        number."""
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
        """Releases those of the listed leases that nobody holds; returns their number.

        The placer knows everything placed before the list, because answers arrive in order. Leases
        that it does not know may have been released since, so Redis is asked again after that.
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
