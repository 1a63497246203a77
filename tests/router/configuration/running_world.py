"""A router with replicas, open connections and an engine, for changes of its settings."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pando_fleet.redis.client import RedisClient, connect
from tests.router.configuration.reloading import Reloading, reloading
from tests.router.http.http_world import Raw
from tests.router.upstreams.foreign_engines import Vllm
from tests.router.world import Answer, Replica, RouterClient, completion, never, status, until

ENGINE = "the URL of World.engine"
FOLDER = "a folder of the test's"


@dataclass
class World:
    """A router with replicas, some open connections, and an engine that may be an upstream."""

    reloading: Reloading
    replicas: list[Replica]  # three
    engine: Vllm
    redis: RedisClient
    caplog: pytest.LogCaptureFixture
    release: asyncio.Event
    connections: list[Raw]
    folder: Path
    held: list["asyncio.Task[Answer]"] = field(default_factory=list)

    @property
    def router(self) -> RouterClient:
        return self.reloading.router

    async def ask(self, prompt: str = "hello", *, model: str = "m", **headers: str) -> Answer:
        body = completion(prompt) | {"model": model}
        return await self.router.post("/v1/completions", body, **headers)

    async def hold(self, count: int, size: int = 1) -> None:
        """Leaves `count` requests at the replicas."""
        while len(self.held) < count:
            self.held.append(asyncio.create_task(self.ask("held" + "x" * size)))
        lifecycle = self.reloading.running.lifecycle
        await until(lambda: lifecycle.requests == count, "requests being held")
        await until(lambda: sum(len(r.received) for r in self.replicas) >= count, "them there")

    async def total(self, metric: str) -> float:
        """Over all labels."""
        lines = (await self.router.get("/metrics")).body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(metric + "{"))

    async def is_healthy(self, replica: Replica) -> bool:
        pools = (await self.router.get("/fleet")).json["pools"]
        (row,) = (row for row in pools["default"] if row["replica"] == replica.name)
        return bool(row["healthy"])


@asynccontextmanager
async def running(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, **settings: Any
) -> AsyncIterator[World]:
    release = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        prompt = json.loads(await request.read()).get("prompt", "")
        if prompt.startswith("held"):
            await release.wait()
        elif prompt == "silent":
            await never(request)
        elif prompt == "failing":
            return await status(503)(request)
        elif prompt == "large":
            return web.Response(body=bytes(64 << 20))
        elif prompt in ("stalling", "breaking"):
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b": " + b"x" * 100 + b"\n\n")
            if prompt == "stalling":
                await never(request)
            assert request.transport is not None
            request.transport.close()
            return response
        return web.json_response({})

    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(Vllm("foreign"))
        started = [await stack.enter_async_context(Replica(redis_url, name)) for name in "abc"]
        for replica in started:
            replica.answer = answer
        file = tmp_path / "router.yaml"
        world = await stack.enter_async_context(
            reloading(redis_url, file, **filled(settings, engine, tmp_path))
        )
        await world.router.ready(*(replica.name for replica in started))
        redis = connect(redis_url)
        stack.push_async_callback(redis.aclose)
        connections = []
        for _ in range(3):
            connection = await stack.enter_async_context(Raw(world.router.port))
            connection.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await connection.answer()).status == 200
            connections.append(connection)
        found = World(world, started, engine, redis, caplog, release, connections, tmp_path)
        try:
            yield found
        finally:
            release.set()
            await asyncio.gather(*found.held)


def filled(settings: dict[str, Any], engine: Vllm, folder: Path) -> dict[str, Any]:
    """The settings with what only the running world knows: `ENGINE` and `FOLDER`."""

    def value(given: Any) -> Any:
        if isinstance(given, str):
            return given.replace(FOLDER, str(folder))
        return [engine.url] if given == [ENGINE] else given

    return {name: value(given) for name, given in settings.items()}
