"""Replaced certificate files are read again, for every kind of URL and connection."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from pando_fleet.redis.client import FleetError, FleetUnavailable, connect
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import Registry
from tests.fleet.redis.front import Front
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.waiting import until_async

Start = Callable[..., RedisServer]
SET = ("k", "SET", "k", 1)


class Guarded:
    """A Redis behind TLS, and the file with the authority that its clients trust."""

    def __init__(self, file: Path) -> None:
        self.ca = trustme.CA()
        self.fronts: list[Front] = []
        self.file = file
        self.url = ""
        self.write()

    def rotate(self) -> None:
        """The servers restart with certificates by another authority."""
        self.ca = trustme.CA()
        for front in self.fronts:
            front.show(self.ca)
            front.cut()

    def write(self) -> None:
        """Like Kubernetes: another file replaces the old one."""
        new = self.file.with_suffix(".new")
        self.ca.cert_pem.write_to_path(str(new))
        new.rename(self.file)

    async def front(self, stack: AsyncExitStack, server: RedisServer) -> int:
        front = await stack.enter_async_context(Front(server.port, self.ca))
        self.fronts.append(front)
        return front.port


async def single(guarded: Guarded, stack: AsyncExitStack, start: Start) -> str:
    port = await guarded.front(stack, start(port=free_port()))
    return f"rediss://127.0.0.1:{port}/0?"


async def sentinel(guarded: Guarded, stack: AsyncExitStack, start: Start) -> str:
    master = await guarded.front(stack, start(port=free_port()))
    watch = start(
        "--sentinel", port=free_port(), config=f"sentinel monitor prod 127.0.0.1 {master} 1"
    )
    return f"rediss+sentinel://127.0.0.1:{await guarded.front(stack, watch)}/prod?"


async def cluster(guarded: Guarded, stack: AsyncExitStack, start: Start) -> str:
    server = start(
        "--cluster-enabled", "yes", port=free_port(), config=f"cluster-port {free_port()}"
    )
    port = await guarded.front(stack, server)
    admin: Any = server.admin()
    with admin:
        admin.config_set("cluster-announce-port", port)
        admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await until_async(
            lambda: b"cluster_state:ok" in admin.execute_command("CLUSTER", "INFO"), "a cluster"
        )
    return f"rediss+cluster://127.0.0.1:{port}?"


@pytest.fixture(params=[single, sentinel, cluster])
async def guarded(
    request: pytest.FixtureRequest, start_valkey: Start, tmp_path: Path
) -> AsyncIterator[Guarded]:
    guarded = Guarded(tmp_path / "ca.pem")
    async with AsyncExitStack() as stack:
        url = await request.param(guarded, stack, start_valkey)
        guarded.url = f"{url}ssl_ca_certs={guarded.file}"
        yield guarded


@asynccontextmanager
async def both(url: str) -> AsyncIterator[tuple[Registry, Wire]]:
    redis = connect(url)
    wire = Wire(redis)
    try:
        yield Registry(redis), wire
    finally:
        await wire.aclose()
        await redis.aclose()


async def settled(call: Callable[[], Awaitable[Any]]) -> Any:
    """What the call returns or raises. A busy machine may take longer than Redis's time limit for
    so many handshakes: then the call is repeated."""
    while True:
        try:
            return await call()
        except FleetUnavailable as error:
            if not re.search("in time|Timeout|did not answer", str(error)):
                raise


async def test_a_replaced_authority_is_trusted_without_a_restart(guarded: Guarded) -> None:
    async with both(guarded.url) as (registry, wire):
        for _ in range(2):
            assert await settled(registry.pools) == []
            assert await settled(partial(wire.call, *SET)) == b"OK"
            guarded.rotate()
            with pytest.raises(FleetUnavailable, match=r"certificate|No master found"):
                await settled(partial(wire.call, *SET))
            with pytest.raises(FleetUnavailable):
                await registry.pools()
            guarded.write()


async def test_a_file_that_is_not_there_yet_is_named_and_read_once_it_is(guarded: Guarded) -> None:
    guarded.file.unlink()
    async with both(guarded.url) as (registry, wire):
        with pytest.raises(FleetUnavailable, match=r"ca\.pem|No master found"):
            await settled(partial(wire.call, *SET))
        with pytest.raises(FleetUnavailable):
            await registry.pools()
        guarded.write()
        assert await settled(partial(wire.call, *SET)) == b"OK"
        assert await settled(registry.pools) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+cluster://h?ssl_ca_certs=/ca.pem", r"takes no options, not \['ssl_ca_certs'\]"),
        ("redis+sentinel://h/m?ssl_ca_certs=/ca.pem", "takes sentinel_password, not"),
        ("rediss+cluster://h?ssl_ca_cert=/ca.pem", "takes ssl_ca_certs, .*not .'ssl_ca_cert'"),
        ("rediss+cluster://h?ssl_check_hostname", "cannot be parsed"),
    ],
)
def test_options_of_tls_that_would_do_nothing_are_refused(url: str, message: str) -> None:
    with pytest.raises(FleetError, match=message):
        connect(url)
