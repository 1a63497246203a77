"""The router as a separate process: start, drain, end, and its imports."""

import asyncio
import resource
import signal
import sys
from contextlib import AsyncExitStack

import aiohttp
import pytest
from pydantic import ValidationError

from pando_fleet.http.open_files import allow_open_files
from pando_router.configuration.settings import RouterSettings
from tests.router.http.http_world import Raw
from tests.router.process.router_process import ENVIRONMENT, router_process
from tests.router.world import Replica, RouterClient, completion, streaming, until
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.e2e


async def is_unready(router: RouterClient) -> bool:
    return (await router.get("/readyz")).status == 503


async def test_sigterm_finishes_what_runs_and_exits_with_0(valkey_url: str) -> None:
    async with Replica(valkey_url, "a") as a, router_process(valkey_url) as (child, router):
        async with streaming(router, a) as (stream, response):
            child.terminate()
            await until(lambda: is_unready(router), "the router being unready")
            refused = await router.post("/v1/completions", completion())
            assert (refused.status, refused.json["error"]["code"]) == (503, "draining")
            stream.put(b"data: 2\n\n")
            stream.end()
            assert await response.content.read() == b"data: 2\n\n"
        assert await child.wait() == 0


async def test_stream_that_outlasts_the_drain_is_cut(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        router_process(valkey_url, drain_seconds=0.1) as (child, router),
    ):
        async with streaming(router, a):
            child.terminate()
            assert await child.wait() == 0
        await until(lambda: a.cancelled == 1, "the replica's request cancelled")


async def test_draining_router_sends_its_clients_to_others(valkey_url: str) -> None:
    ask = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"
    async with Replica(valkey_url, "a") as a, router_process(valkey_url) as (child, router):
        async with Raw(router.port) as client, streaming(router, a) as (stream, _):
            client.send(ask % b"/healthz")
            assert "connection" not in (await client.answer()).headers
            child.terminate()
            await until(lambda: is_unready(router), "the router being unready")
            client.send(ask % b"/healthz")
            assert (await client.answer()).headers["connection"] == "close"
            assert await client.closed()
            stream.end()
        assert await child.wait() == 0


async def test_idle_connections_beyond_the_limit_of_files_make_room_for_requests(
    valkey_url: str,
) -> None:
    allow_open_files()
    few = (256, 256)
    async with (
        Replica(valkey_url, "a"),
        router_process(
            valkey_url, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few)
        ) as (_, router),
        AsyncExitStack() as clients,
    ):
        for _ in range(400):
            await clients.enter_async_context(Raw(router.port))
        for _ in range(20):
            assert (await router.get("/healthz")).status == 200
            assert (await router.post("/v1/completions", completion())).status == 200


async def test_second_signal_ends_at_once(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        router_process(valkey_url) as (child, router),
        streaming(router, a),
    ):
        child.send_signal(signal.SIGINT)
        await until(lambda: is_unready(router), "the router being unready")
        child.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(child.wait(), PATIENCE_S) == 1


async def test_router_without_replicas_is_ready_itself_but_its_fleet_is_not(
    valkey_url: str,
) -> None:
    itself = "/readyz?exclude=fleet"
    async with router_process(valkey_url, ready_path=itself) as (child, router):
        answer = await router.get("/readyz")
        assert (answer.status, answer.json["status"]) == (503, "no replica is ready")
        wrong = await router.get("/readyz?exclude=all")
        assert (wrong.status, wrong.json["error"]["param"]) == (400, "exclude")
        child.terminate()

        async def not_ready() -> bool:
            try:
                return (await router.get(itself)).status == 503
            except aiohttp.ClientConnectionError:
                return True

        await until(not_ready, "the router being unready")


async def test_router_imports_nothing_of_the_engine() -> None:
    check = (
        "import sys, pando_router.serve\n"
        "heavy = {'torch', 'numpy', 'transformers', 'pando_worker'} & sys.modules.keys()\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", check, env=ENVIRONMENT)
    assert await child.wait() == 0


def test_bad_redis_url_is_refused_without_showing_its_password() -> None:
    with pytest.raises(ValidationError) as refused:
        RouterSettings(redis="http://:secret@host:6379")
    assert "redis" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_leases_that_end_before_they_can_be_renewed_are_refused() -> None:
    with pytest.raises(ValidationError, match="lease_seconds"):
        RouterSettings(lease_seconds=0.0005)


async def test_ctrl_c_waits_for_no_load_balancer(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a"),
        router_process(valkey_url, leave_seconds=600) as (child, _),
    ):
        child.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(child.wait(), PATIENCE_S) == 0
