"""Hundreds of replicas: real heartbeats in a real Redis, and one HTTP server at as many addresses.

async with Crowd(redis_url, {"chat": 200, "code": 100}) as crowd:
    await crowd.lose("chat-7")
"""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from pando_fleet.redis.client import FleetUnavailable, connect
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState

BEAT_S = 0.5
CAPACITY_TOKENS = 400_000


class Crowd:
    """By pool, how many replicas; they are named after it. Their loads are drawn at random, the
    same ones each time."""

    def __init__(self, redis_url: str, pools: Mapping[str, int], **beat: Any) -> None:
        self._redis = connect(redis_url)
        self._registry = Registry(self._redis)
        self._sizes = pools
        self._beat = beat
        self.hearts: dict[str, tuple[str, Heartbeat]] = {}  # pool and heartbeat, by replica
        self.answered: dict[str, int] = {}  # requests, by replica

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "0.0.0.0", 0)
        await site.start()
        self._hosts: dict[str, str] = {}
        rng = random.Random(5)
        port = self._runner.addresses[0][1]
        for pool, size in self._sizes.items():
            for number in range(size):
                name = f"{pool}-{number}"
                host = f"127.1.{len(self._hosts) // 250}.{len(self._hosts) % 250 + 1}"
                self._hosts[host] = name
                url = f"http://{host}:{port}"
                self.hearts[name] = pool, _heartbeat(name, url, pool, rng, self._beat)
        await self._beat_all()
        self._beating = asyncio.create_task(self._keep_beating())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._beating.cancel()
        await asyncio.wait([self._beating])
        await self._runner.cleanup()
        await self._redis.aclose()

    def lose(self, *names: str) -> None:
        """From now on they neither beat nor answer."""
        for name in names:
            del self.hearts[name]

    async def say(self, name: str, **changes: Any) -> None:
        """Changes a replica's heartbeat and sends it now."""
        pool, heart = self.hearts[name]
        self.hearts[name] = pool, replace(heart, **changes)
        await self._registry.beat(pool, self.hearts[name][1])

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._beat_all()

    async def _beat_all(self) -> None:
        with suppress(FleetUnavailable):
            await asyncio.gather(*(self._registry.beat(*one) for one in self.hearts.values()))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        name = self._hosts[(request.host or "").partition(":")[0]]
        if name not in self.hearts:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if request.method == "POST":
            self.answered[name] = self.answered.get(name, 0) + 1
        size = 100 + len(await request.read()) // 4
        headers = {"x-pando-prompt-tokens": str(size), "x-pando-cached-tokens": str(size // 2)}
        return web.json_response({"replica": name}, headers=headers)


def _heartbeat(
    name: str, url: str, pool: str, rng: random.Random, beat: Mapping[str, Any]
) -> Heartbeat:
    pinned = int(CAPACITY_TOKENS * rng.betavariate(2, 3))
    return replace(
        Heartbeat(
            replica=name,
            incarnation=f"{name}-1",
            url=url,
            model=f"{pool}-model",
            state=ReplicaState.READY,
            capacity_tokens=CAPACITY_TOKENS,
            pinned_tokens=pinned,
            cached_tokens=int((CAPACITY_TOKENS - pinned) * rng.uniform(0.3, 0.9)),
            running=pinned // 8_000,
            waiting=rng.choice((0,) * 12 + (1, 3)),
            prefill_tokens_per_s=rng.uniform(8_000, 12_000),
            decode_tokens_per_s=rng.uniform(500, 2_500),
            prompt_tokens_total=1_000_000,
            cached_prompt_tokens_total=rng.randint(300_000, 900_000),
        ),
        **beat,
    )
