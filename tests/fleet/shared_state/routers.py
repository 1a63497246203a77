"""A router of the model: what it holds, and a line to Redis that fails on command."""

import asyncio
from dataclasses import dataclass, field

from pando_fleet.placement.keeper import Keeper
from pando_fleet.placement.placer import Placement, Placer
from pando_fleet.redis.client import FleetUnavailable
from pando_fleet.redis.layout.rows import Part
from pando_fleet.redis.wire import Wire
from pando_fleet.redis.wire.call import Answer


class BadLine:
    """A line to Redis that fails on command: a call is `dropped`, or runs `late`, when its caller
    has given up."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.fails = ""
        self._late: list[tuple[str, bytes, bytes]] = []

    def send(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        if not self.fails:
            self._wire.send(key, packed, answer, script)
            return
        if self.fails == "late":
            self._late.append((key, packed, script))
        error = FleetUnavailable("no answer in time")
        asyncio.get_running_loop().call_soon(answer, error)

    def flush(self) -> None:
        self._wire.flush()

    async def run_late(self) -> int:
        """The calls that were given up reach Redis now, in their order; how many."""
        late, self._late = self._late, []
        loop = asyncio.get_running_loop()
        for key, packed, script in late:
            done: asyncio.Future[object] = loop.create_future()
            self._wire.send(key, packed, done.set_result, script)
            await done
        return len(late)


@dataclass
class Router:
    name: str
    line: BadLine
    placer: Placer
    keeper: Keeper
    holds: dict[str, Placement] = field(default_factory=dict)
    waits: dict[str, bool] = field(default_factory=dict)
    is_stopped: bool = False
    is_known: bool = False  # to Redis, and stays so: others see where it falls silent
    looks_until_late: int = 0  # until the calls that were given up run

    def parts(self) -> dict[str, Part]:
        """What Redis should have of its leases."""
        found = {}
        for lease, placement in self.holds.items():
            chosen = placement.chosen
            owner = f"{chosen.incarnation}:{chosen.replica}"
            whole = Part(chosen.work, chosen.room, 1.0, owner)
            found[lease] = whole if self.waits[lease] else Part(0.0, 0.0, 0.0, owner)
        return found


def router_of(lease: str) -> str:
    return lease.partition("-")[0]
