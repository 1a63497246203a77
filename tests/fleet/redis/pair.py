"""A managed failover between two real servers: the address moves, the connections stay."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.fleet.redis.front import Front
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.waiting import until_async


@dataclass(frozen=True, slots=True)
class Pair:
    """Two servers; the address `front` leads to the old one."""

    old: RedisServer
    new: RedisServer
    front: Front

    @property
    def url(self) -> str:
        return self.front.url

    def switch(self, old_follows: int) -> None:
        """Makes the new server the master at the address. The old one becomes a replica of the
        server at port `old_follows` and keeps its connections. Like a managed failover, it first
        waits until the new server has all writes."""
        with self.old.admin() as old, self.new.admin() as new:
            _written_there(old)
            new.replicaof("NO", "ONE")
            self.front.target = self.new.port
            old.replicaof("127.0.0.1", str(old_follows))


@asynccontextmanager
async def pair(start: Callable[..., RedisServer], config: str = "") -> AsyncIterator[Pair]:
    """The new server replicates the old one."""
    config += "\nrepl-diskless-sync-delay 0\n"
    old, new = start(port=free_port(), config=config), start(port=free_port())
    with new.admin() as replica, old.admin() as master:
        replica.replicaof("127.0.0.1", str(old.port))
        await until_async(lambda: _follows(master), "the replica following what is written")
    async with Front(old.port) as front:
        yield Pair(old, new, front)


def _follows(master: Any) -> bool:
    """Even with its link up, writes may go only to a buffer for a second."""
    return _written_there(master, 100)


def _written_there(master: Any, timeout_ms: int = 10_000) -> bool:
    """WAIT covers its own connection's writes, and so all earlier writes."""
    master.set("written", 1)
    return bool(master.wait(1, timeout_ms))
