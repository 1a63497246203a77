"""The router as a process of its own: start, drain, end, and what it imports."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from pydantic import ValidationError

from pando_router.settings import RouterSettings
from tests.fleet.redis_server import free_port
from tests.router.world import Replica, RouterClient, Stream, chat, completion, until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("fleet", "router")),
}
SERVE = """
import logging, sys
from pando_router.serve import run
from pando_router.settings import RouterSettings
redis, port, drain_seconds = sys.argv[1:]
settings = RouterSettings(redis=redis, port=port, drain_seconds=drain_seconds)
sys.exit(run(settings, logging.basicConfig))
"""


@asynccontextmanager
async def process(
    redis_url: str, drain_seconds: float
) -> AsyncIterator[tuple[asyncio.subprocess.Process, RouterClient]]:
    port = free_port()
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVE, redis_url, str(port), str(drain_seconds)), env=ENVIRONMENT
    )
    try:
        async with aiohttp.ClientSession() as session:
            router = RouterClient(port, session)

            async def ready() -> bool:
                try:
                    return (await router.get("/readyz")).status == 200
                except aiohttp.ClientConnectionError:
                    return False

            await until(ready, "the router's process being ready")
            yield child, router
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def test_sigterm_finishes_what_runs_and_exits_with_0(valkey_url: str) -> None:
    async with Replica(valkey_url, "a") as a, process(valkey_url, 30.0) as (child, router):
        a.answer = stream = Stream()
        stream.put(b"data: 1\n\n")
        async with router.session.post(
            router.url + "/v1/chat/completions", json=chat("hi", stream=True)
        ) as response:
            await response.content.readany()
            child.terminate()

            async def not_ready() -> bool:
                return (await router.get("/readyz")).status == 503

            await until(not_ready, "the router being unready")
            refused = await router.post("/v1/completions", completion())
            assert (refused.status, refused.json["error"]["code"]) == (503, "draining")
            stream.put(b"data: 2\n\n")
            stream.end()
            assert await response.content.read() == b"data: 2\n\n"
        assert await child.wait() == 0


async def test_stream_that_outlasts_the_drain_is_cut(valkey_url: str) -> None:
    async with Replica(valkey_url, "a") as a, process(valkey_url, 0.1) as (child, router):
        a.answer = stream = Stream()
        stream.put(b"data: 1\n\n")
        async with router.session.post(
            router.url + "/v1/chat/completions", json=chat("hi", stream=True)
        ) as response:
            await response.content.readany()
            child.terminate()
            assert await child.wait() == 0
        await until(lambda: a.cancelled == 1, "the replica's request cancelled")


async def test_second_signal_ends_at_once(valkey_url: str) -> None:
    async with Replica(valkey_url, "a") as a, process(valkey_url, 30.0) as (child, router):
        a.answer = stream = Stream()
        stream.put(b"data: 1\n\n")
        async with router.session.post(
            router.url + "/v1/chat/completions", json=chat("hi", stream=True)
        ) as response:
            await response.content.readany()
            child.send_signal(signal.SIGINT)

            async def not_ready() -> bool:
                return (await router.get("/readyz")).status == 503

            await until(not_ready, "the router being unready")
            child.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(child.wait(), 3.0) == 1


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
