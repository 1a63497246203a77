"""Workers that give wrong answers while they are measured cause one clear error."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pando_sim.cost.calibration.calibrate import Options, calibrate
from pando_sim.cost.calibration.client import Client
from pando_sim.cost.calibration.design import Interrupted, Limits, Texts
from pando_sim.cost.calibration.errors import CalibrationError
from pando_sim.cost.calibration.worker import load_of
from tests.router.tenants.tenants_world import key_file
from tests.router.world import serving

LIMITS = Limits(longest_prompt=64, capacity_tokens=512, most_together=1, chunk_tokens=64)
TOKEN: dict[str, Any] = {"choices": [{"index": 0, "text": "a"}]}
USAGE: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}


@asynccontextmanager
async def worker(
    *lines: str, status: int = 200, metrics: str = "", tells: dict[str, Any] | None = None
) -> AsyncIterator[tuple[Client, list[str]]]:
    """Answers every completion with these events; also yields the list of requests."""
    asked: list[str] = []

    async def completions(request: web.Request) -> web.Response:
        asked.append(request.path)
        text = "".join(f"data: {line}\n\n" for line in lines)
        return web.Response(text=text, status=status, content_type="text/event-stream")

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    async def info(request: web.Request) -> web.Response:
        return web.json_response(tells or {})

    async def counters(request: web.Request) -> web.Response:
        return web.Response(text=metrics)

    app = web.Application()
    app.router.add_post("/v1/completions", completions)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/server_info", info)
    app.router.add_get("/metrics", counters)
    async with (
        TestServer(app) as server,
        Client(f"http://127.0.0.1:{server.port}", None, 5.0) as client,
    ):
        yield client, asked


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{not json"], "not as expected"),
        ([json.dumps({"text": "no choices"})], "not as expected"),
        ([json.dumps(TOKEN), json.dumps({"choices": [], "usage": {"tokens": 3}})], "not as expect"),
        ([json.dumps(TOKEN)], "without usage"),
        ([json.dumps({"error": {"message": "too much"}})], "too much"),
    ],
)
async def test_an_invalid_completion_is_reported(lines: list[str], said: str) -> None:
    async with worker(*lines) as (client, _):
        with pytest.raises(CalibrationError, match=said):
            await client.ask("la la", 1)


async def test_one_of_two_requests_that_breaks_ends_the_measurement_with_its_reason() -> None:
    async with worker(status=500) as (client, _):
        with pytest.raises(CalibrationError, match="HTTP 500"):
            await Interrupted(16).measure(client, Texts(0), LIMITS)


async def test_invalid_metrics_are_reported() -> None:
    async with worker(metrics="vllm:num_requests_running{ 1\n") as (client, _):
        with pytest.raises(CalibrationError, match="/metrics is not as expected"):
            await load_of(client)


async def test_a_router_is_no_worker(valkey_url: str, tmp_path: Path) -> None:
    with_keys: dict[str, Any] = {"api_keys": key_file(tmp_path, a={})}
    for settings in ({}, with_keys):
        async with serving(valkey_url, **settings) as router:
            with pytest.raises(CalibrationError, match="it is a router") as error:
                await calibrate(Options(url=router.url), lambda done, total: None)
            assert "\n" not in str(error.value)


async def test_a_machine_that_is_missing_is_asked_for_before_anything_is_measured() -> None:
    async with worker(json.dumps(TOKEN), json.dumps(USAGE)) as (client, asked):
        with pytest.raises(CalibrationError, match="set --machine"):
            await calibrate(Options(url=client.url), lambda done, total: None)
        assert not asked
