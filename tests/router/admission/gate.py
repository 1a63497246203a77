"""Replicas that hold their answers until a test releases them, and helpers for such tests."""

import asyncio
import json
from typing import Any

from aiohttp import web

from pando_fleet.redis.client import connect
from tests.router.world import Answer, RouterClient, completion, until


class Gate:
    """A replica's answer that waits until the test releases it; records the waiting prompts."""

    def __init__(self) -> None:
        self.inside: list[str] = []  # prompts, in order of arrival
        self.order: list[str] = []
        self.most = 0
        self._open: dict[str, asyncio.Event] = {}

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        prompt = json.loads(await request.read())["prompt"]
        self.inside.append(prompt)
        self.order.append(prompt)
        self.most = max(self.most, len(self.inside))
        try:
            await self._open.setdefault(prompt, asyncio.Event()).wait()
            return web.json_response({"prompt": prompt})
        finally:
            self.inside.remove(prompt)

    def let(self, *prompts: str) -> None:
        for prompt in prompts:
            self._open.setdefault(prompt, asyncio.Event()).set()


def ask(router: RouterClient, prompt: str, body: Any = None, **headers: str) -> Any:
    request = router.post("/v1/completions", completion(prompt, **body or {}), **headers)
    return asyncio.create_task(request)


async def queued(router: RouterClient, count: int) -> None:
    async def seen() -> bool:
        lengths: dict[str, int] = (await router.get("/fleet")).json["queues"]
        return sum(lengths.values()) == count

    await until(seen, f"{count} requests in the queue")


async def no_lease_is_left(url: str) -> None:
    redis = connect(url)
    try:

        async def none_left() -> bool:
            return int(await redis.zcard("pando:{default}:leases")) == 0

        await until(none_left, "all leases released")
    finally:
        await redis.aclose()


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]["code"]
