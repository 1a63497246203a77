"""Redis answers reads and refuses writes: the lack of heartbeats loses no replica and is reported.

Each cause has its own server; all run at the same time, for longer than a silent replica is
trusted.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from time import monotonic

import pytest

from pando_router.fleet_view.snapshot import LOOKS_READY_S
from tests.fleet.redis_server import REDIS, VALKEY, RedisServer
from tests.ports import free_port
from tests.router.fleet_view.test_outage import keep_asking
from tests.router.world import Replica, redis_is, serving, until

Refuse = Callable[[RedisServer], None]


def out_of_memory(server: RedisServer) -> None:
    with server.admin() as admin:
        admin.config_set("maxmemory", 1)


def demoted(server: RedisServer) -> None:
    with server.admin() as admin:
        admin.replicaof("127.0.0.1", str(free_port()))


def without_replicas(server: RedisServer) -> None:
    with server.admin() as admin:
        admin.config_set("min-replicas-to-write", 1)


def without_disk(server: RedisServer) -> None:
    with server.admin() as admin:
        admin.config_set("save", "3600 1")
        (server.folder / "snapshots").rmdir()
        admin.bgsave()


WAYS: list[tuple[str, Refuse, str, str]] = [
    ("OOM", out_of_memory, "full", "redis is full"),
    ("READONLY", demoted, "read_only", "redis refuses writes"),
    ("NOREPLICAS", without_replicas, "read_only", "redis refuses writes"),
    ("MISCONF", without_disk, "read_only", "redis refuses writes"),
]
PLACED = 'pando_router_placements_total{outcome="%s",policy="cache_aware"}'


@pytest.fixture(
    params=[VALKEY, pytest.param(REDIS, marks=pytest.mark.long)], ids=["valkey", "redis"]
)
def start(request: pytest.FixtureRequest) -> Iterator[Callable[[], RedisServer]]:
    with ExitStack() as servers:

        def start() -> RedisServer:
            binary: Path = request.param
            server = servers.enter_context(
                closing(RedisServer(binary, "--save", "", port=free_port()))
            )
            snapshots = server.folder / "snapshots"
            snapshots.mkdir()
            with (server.folder / "conf").open("a") as config:
                config.write(f"dir {snapshots}\n")
            server.start()
            return server

        yield start


async def test_no_request_fails_while_redis_refuses_writes(
    start: Callable[[], RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pando.router")

    async def lives_through(
        word: str, refuse: Refuse, state: str, message: str, stack: AsyncExitStack
    ) -> None:
        server = start()
        for name in ("a", "b"):
            await stack.enter_async_context(Replica(server.url, name))
        router = await stack.enter_async_context(serving(server.url))
        await router.ready("a", "b")
        stop = asyncio.Event()
        asking = asyncio.create_task(keep_asking(router, stop, every_s=0.02))
        refuse(server)
        refused_s = monotonic()

        async def ages_s() -> list[float]:  # of the heartbeats
            members = (await router.get("/fleet")).json["pools"]["default"]
            return [member["age_ms"] / 1000 for member in members]

        async def has_shown_whether_it_dies() -> bool:
            if state == "full":  # heartbeats are written all the same
                return max(await ages_s()) < monotonic() - refused_s
            return min(await ages_s()) > LOOKS_READY_S

        await redis_is(router, state)
        assert await router.metric("pando_router_redis_up") == 1
        assert await router.metric("pando_router_redis_writable") == 0
        outcome = "shared" if state == "full" else "fallback"
        placed = await router.metric(PLACED % outcome)
        await until(has_shown_whether_it_dies, f"{word}: a silence, or a heartbeat")

        async def has_placed() -> bool:
            return await router.metric(PLACED % outcome) > placed + 100

        await until(has_placed, f"{word}: a hundred placements")
        await router.ready("a", "b")
        assert (await router.get("/healthz")).json["redis"] == state
        stop.set()
        assert set(await asking) == {200}, word

    async with AsyncExitStack() as stack:
        await asyncio.gather(*(lives_through(*way, stack) for way in WAYS))
    for word, _, _, message in WAYS:
        said = [record for record in caplog.records if record.message == message]
        (line,) = (record for record in said if word in record.__dict__["error"])
        assert line.__dict__["pools"] == ["default"]
    assert not [record for record in caplog.records if record.message == "redis is away"]
