"""The Redis client: each kind of URL reaches a real server, and failures become one error type."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from pando_fleet.placement.placer import Ask, Placer
from pando_fleet.redis.client import (
    FleetError,
    FleetFull,
    FleetReadOnly,
    FleetUnavailable,
    RedisClient,
    connect,
)
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import NameTakenError, Registry
from tests.fleet.redis.front import Front
from tests.fleet.redis_server import RedisServer
from tests.fleet.world import BEAT, path
from tests.ports import free_port
from tests.waiting import PATIENCE_S

StartValkey = Callable[..., RedisServer]
SECRET = "s3cr3t"


@asynccontextmanager
async def _client(url: str) -> AsyncIterator[RedisClient]:
    client = connect(url)
    try:
        yield client
    finally:
        await client.aclose()


async def _serves_a_pool(client: RedisClient) -> None:
    """Runs every script and plain command of the package, and checks their results."""
    wire, lost = Wire(client), list[str]()
    placer = Placer(wire, "p", failed=lambda reason, count: lost.append(reason))
    registry = Registry(client)
    await registry.beat("p", replace(BEAT, replica="a"))
    assert await registry.pools() == ["p"]
    assert [r.beat.replica for r in await registry.replicas("p")] == ["a"]
    keys = path("hello", 5)
    ask = Ask(keys=keys, prompt_tokens=400, output_tokens=1, lease="l", lease_ms=60_000)
    placed = await placer.place(ask)
    placer.prefilled(placed)
    placer.release(placed)
    placer.cut(placed, keys, 2)
    await placer.flush()
    [candidate] = await placer.explain(ask)
    await wire.aclose()
    assert not lost
    assert (candidate.matched_chunks, candidate.outstanding) == (2, 0)
    await registry.leave("p", "a", "1")
    assert await registry.replicas("p") == []


async def test_a_unix_socket_url_serves_a_pool(redis_url: str) -> None:
    async with _client(redis_url) as client:
        await _serves_a_pool(client)


async def test_a_tcp_url_with_password_and_database_serves_a_pool(
    start_valkey: StartValkey,
) -> None:
    server = start_valkey(port=free_port(), password="p@ss/:word")
    url = f"redis://:p%40ss%2F%3Aword@127.0.0.1:{server.port}/3"
    async with _client(url) as client:
        await _serves_a_pool(client)
        await client.set("here", 1)
    with server.admin() as admin:
        assert admin.info("keyspace")["db3"]["keys"] >= 1


async def test_a_tls_url_serves_a_pool_where_the_certificate_is_trusted(
    start_valkey: StartValkey, tmp_path: Path
) -> None:
    server, ca = start_valkey(port=free_port(), password=SECRET), trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with Front(server.port, ca) as front:
        url = f"rediss://:{SECRET}@127.0.0.1:{front.port}/0"
        async with _client(f"{url}?ssl_ca_certs={tmp_path / 'ca.pem'}") as client:
            await _serves_a_pool(client)
        async with _client(url) as client:
            with pytest.raises(FleetUnavailable, match="certificate"):
                await Registry(client).pools()


async def test_a_cluster_url_serves_a_pool(start_valkey: StartValkey) -> None:
    server = start_valkey(
        "--cluster-enabled", "yes", port=free_port(), config=f"cluster-port {free_port()}"
    )
    with server.admin() as admin:
        admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        _wait_until(lambda: b"cluster_state:ok" in admin.execute_command("CLUSTER", "INFO"))
    async with _client(f"redis+cluster://127.0.0.1:{server.port}") as client:
        await _serves_a_pool(client)


async def test_a_sentinel_url_serves_a_pool_on_the_master_it_names(
    start_valkey: StartValkey,
) -> None:
    master = start_valkey(port=free_port(), password=SECRET)
    sentinel = start_valkey(
        "--sentinel",
        port=free_port(),
        password="watch",
        config=f"sentinel monitor prod 127.0.0.1 {master.port} 1\nsentinel auth-pass prod {SECRET}",
    )
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}"  # the first one is down
    url = f"redis+sentinel://:{SECRET}@{hosts}/prod/2?sentinel_password=watch"
    async with _client(url) as client:
        await _serves_a_pool(client)
        await client.set("here", 1)
    with master.admin() as admin:
        assert "db2" in admin.info("keyspace")
    async with _client(url.replace("/prod/", "/other/")) as client:
        with pytest.raises(FleetUnavailable, match="other"):
            await Registry(client).pools()


async def test_the_same_client_serves_again_after_redis_came_back_empty(
    start_valkey: StartValkey,
) -> None:
    server = start_valkey()
    async with _client(server.url) as client:
        await _serves_a_pool(client)
        server.stop()
        with pytest.raises(FleetUnavailable):
            await Registry(client).beat("p", replace(BEAT, replica="a"))
        with pytest.raises(FleetUnavailable):
            await Registry(client).pools()
        server.start()
        await _serves_a_pool(client)


async def test_a_restart_between_two_calls_costs_no_error(start_valkey: StartValkey) -> None:
    server = start_valkey()
    async with _client(server.url) as client:
        await _serves_a_pool(client)
        server.stop()
        server.start()
        await _serves_a_pool(client)


async def test_a_redis_that_does_not_answer_is_given_up_after_about_a_second(
    start_valkey: StartValkey,
) -> None:
    server = start_valkey()
    async with _client(server.url) as client:
        await _serves_a_pool(client)
        server.freeze()
        start = time.monotonic()
        with pytest.raises(FleetUnavailable):
            await Registry(client).replicas("p")
        assert 0.9 < time.monotonic() - start < 5
        server.thaw()
        await _serves_a_pool(client)


async def test_a_heartbeat_is_written_though_memory_is_full(redis_url: str) -> None:
    async with _client(redis_url) as client:
        registry = Registry(client)
        await client.config_set("maxmemory", 1)
        try:
            for number in range(3):
                await registry.beat("p", replace(BEAT, replica="a", running=number))
            with pytest.raises(NameTakenError):
                await registry.beat("p", replace(BEAT, replica="a", incarnation="2", url="other"))
            with pytest.raises(FleetFull, match="raise maxmemory"):
                await registry.check_writes("p")
        finally:
            await client.config_set("maxmemory", 0)
        assert [r.beat.running for r in await registry.replicas("p")] == [2]


async def test_a_redis_that_refuses_writes_says_why_and_what_to_do(
    start_valkey: StartValkey,
) -> None:
    server = start_valkey()
    async with _client(server.url) as client:
        registry, wire = Registry(client), Wire(client)
        placer = Placer(wire, "p")
        beat = replace(BEAT, replica="a")
        await registry.beat("p", beat)
        ask = Ask(keys=b"", prompt_tokens=400, output_tokens=1, lease="l", lease_ms=60_000)
        with server.admin() as admin:
            admin.config_set("min-replicas-to-write", 1)
            for call in (registry.beat("p", beat), placer.place(ask), registry.check_writes("p")):
                with pytest.raises(FleetReadOnly, match="NOREPLICAS"):
                    await call
            admin.config_set("min-replicas-to-write", 0)
            admin.replicaof("127.0.0.1", str(free_port()))
            for call in (registry.beat("p", beat), placer.place(ask), registry.check_writes("p")):
                with pytest.raises(FleetReadOnly, match="address of the master"):
                    await call
        assert await registry.pools() == ["p"]
        await wire.aclose()


async def test_a_key_of_another_kind_is_an_error_but_not_an_outage(valkey_url: str) -> None:
    async with _client(valkey_url) as client:
        await client.set("pando:pools", "not a sorted set")
        with pytest.raises(FleetError, match="WRONGTYPE") as failure:
            await Registry(client).pools()
        assert not isinstance(failure.value, FleetUnavailable)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{SECRET}@127.0.0.1:1/0",
        f"rediss://user:{SECRET}@127.0.0.1:1/0",
        f"unix://user:{SECRET}@/nowhere/socket",
        f"redis+sentinel://user:{SECRET}@127.0.0.1:1/prod?sentinel_password={SECRET}",
        f"redis+cluster://user:{SECRET}@127.0.0.1:1",
    ],
)
async def test_an_unreachable_server_is_unavailable_and_no_message_holds_the_password(
    url: str,
) -> None:
    async with _client(url) as client:
        with pytest.raises(FleetUnavailable) as failure:
            await Registry(client).pools()
    assert SECRET not in str(failure.value)


async def test_a_wrong_password_is_unavailable_and_is_not_shown(start_valkey: StartValkey) -> None:
    server = start_valkey(password="right")
    url = server.url.replace("right", SECRET)
    async with _client(url) as client:
        with pytest.raises(FleetUnavailable) as failure:
            await Registry(client).pools()
    assert SECRET not in str(failure.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"http://u:{SECRET}@h", "must start with redis"),
        (f"u:{SECRET}@h:6379", "must start with redis"),
        (f"redis://u:{SECRET}/x@h:6379/0", "percent-encode"),
        (f"redis+cluster://u:{SECRET}/x@h:6379", "cannot be parsed|no path"),
        (f"redis+cluster://u:{SECRET}@h:6379/1", "no path"),
        (f"redis+cluster://u:{SECRET}@h:port", "cannot be parsed"),
        (f"redis+sentinel://u:{SECRET}@h:26379", "must name the master"),
        (f"redis+sentinel://u:{SECRET}@h:26379,/m", "host is missing"),
        (f"redis+sentinel://u:{SECRET}@h:26379/m/x", "cannot be parsed"),
        (f"redis+sentinel://u:{SECRET}@h/m?passwrd={SECRET}", "passwrd"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, message: str) -> None:
    with pytest.raises(FleetError, match=message) as failure:
        connect(url)
    assert SECRET not in str(failure.value)


def _wait_until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


async def test_a_cancellation_at_whatever_moment_of_a_call_arrives(redis_url: str) -> None:
    async with _client(redis_url) as client:
        registry = Registry(client)
        await registry.beat("p", replace(BEAT, replica="a"))
        for turns in range(200):
            call = asyncio.create_task(registry.replicas("p"))
            for _ in range(turns % 50):  # of the event loop, more than a call takes
                await asyncio.sleep(0)
            was_cancelled = call.cancel()
            await asyncio.wait([call])
            assert call.cancelled() == was_cancelled, f"lost after {turns % 50} turns"
        assert len(await registry.replicas("p")) == 1


async def test_a_call_in_the_cleanup_of_a_cancelled_task_is_made(redis_url: str) -> None:
    async with _client(redis_url) as client:
        registry = Registry(client)
        await registry.beat("p", replace(BEAT, replica="a"))
        waits = asyncio.Event()

        async def lives() -> None:
            try:
                waits.set()
                await asyncio.Event().wait()
            finally:
                await registry.leave("p", "a", "1")

        life = asyncio.create_task(lives())
        await waits.wait()
        life.cancel()
        await asyncio.wait([life])
        assert life.cancelled()
        assert await registry.replicas("p") == []
