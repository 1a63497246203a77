"""What other routers, gateways and load tools ask of an engine."""

import asyncio
from typing import Any

import aiohttp
import pytest

from pando_fleet.distribution import version
from pando_router.upstreams.engine import read_sglang_info
from tests.worker.server.process.worker_process import MODEL, MODEL_NAME, until
from tests.worker.server.stand_in import Trick


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/health"), ("GET", "/ping"), ("POST", "/ping"), ("GET", "/health_generate")],
)
async def test_a_ready_worker_is_healthy(
    http: aiohttp.ClientSession, method: str, path: str
) -> None:
    async with http.request(method, path) as answer:
        assert (answer.status, await answer.read()) == (200, b"")


async def test_a_generated_health_check_is_a_step_of_the_scheduler(
    http: aiohttp.ClientSession,
) -> None:
    async def check() -> int:
        async with http.get("/health_generate") as answer:
            return answer.status

    before = await _finished(http)
    assert await asyncio.gather(*(check() for _ in range(5))) == [200] * 5

    async def counted() -> bool:
        return await _finished(http) >= before + 5

    await until(counted)


async def test_version_and_model(http: aiohttp.ClientSession) -> None:
    async def get(path: str) -> Any:
        async with http.get(path) as answer:
            assert answer.status == 200
            return await answer.json()

    assert await get("/version") == {"version": version()}
    model = await get("/get_model_info")
    assert model == await get("/model_info")
    assert model["served_model_name"] == MODEL_NAME
    assert model["model_path"] == str(MODEL)
    assert model["is_generation"]


async def test_gateways_read_the_sizes_as_sglangs(http: aiohttp.ClientSession) -> None:
    async with http.get("/get_server_info") as answer:
        body = await answer.read()
        engine = (await answer.json())["engine"]
    capacity = read_sglang_info(body)
    assert capacity.capacity_tokens == engine["capacity_tokens"]
    assert capacity.max_requests == engine["max_running_requests"]


async def _finished(http: aiohttp.ClientSession) -> int:
    async with http.get("/server_info") as answer:
        return int((await answer.json())["stats"]["finished_requests_total"])


async def test_load_counts_the_requests_here(http: aiohttp.ClientSession) -> None:
    async def load_is(count: int) -> bool:
        async with http.get("/load") as answer:
            in_server = (await answer.json())["server_load"]
        async with http.get("/get_load") as answer:
            [scheduler] = await answer.json()
        return bool(in_server == scheduler["num_reqs"] == count)

    await until(lambda: load_is(0))
    held = {"text": "x", "stream": True, "sampling_params": {"seed": Trick.QUEUED}}
    request = asyncio.ensure_future(http.post("/generate", json=held))
    await until(lambda: load_is(1))
    request.cancel()
    await until(lambda: load_is(0))
