"""A worker without a model, as a process that can be killed: KV pages, a queue, and answers whose
tokens follow from the prompt, so that a client notices a missing one.

    python -m tests.soak.light_worker '{"name": "light-0", "redis": "redis://…"}'

It ends with its standard input. Streams can be resumed at another one, like those of Pando's
workers.
"""

import asyncio
import hashlib
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web

from pando_fleet.redis.client import FleetUnavailable, connect
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState

MODEL = POOL = "light"
PAGE_TOKENS = 16
PAGES = 256
MAX_RUNNING = 12
MAX_WAITING = 24
TOKEN_S = 0.01
BEAT_S = 0.3


def tokens_of(prompt: str, count: int) -> list[str]:
    """The answer of any of these workers to the prompt."""
    seed = hashlib.blake2b(prompt.encode(), digest_size=3).hexdigest()
    return [f"{seed}.{number} " for number in range(count)]


class Pages:
    """Requests without a page wait; a page has one owner during `hold`."""

    def __init__(self) -> None:
        self.free = PAGES
        self.running = 0
        self.waiting = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, tokens: int) -> AsyncIterator[None]:
        """Raises web.HTTPException if it can never fit or too many requests wait."""
        pages = -(-tokens // PAGE_TOKENS)
        if pages > PAGES:
            raise refusal(400, f"{tokens} tokens are more than fit")
        if self.waiting >= MAX_WAITING:
            raise refusal(429, "too many wait")
        self.waiting += 1
        try:
            async with self._changed:
                await self._changed.wait_for(
                    lambda: pages <= self.free and self.running < MAX_RUNNING
                )
                self.free -= pages
                self.running += 1
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self.free += pages
            self.running -= 1
            async with self._changed:
                self._changed.notify_all()


def refusal(status: int, message: str) -> web.HTTPException:
    kinds = {400: web.HTTPBadRequest, 429: web.HTTPTooManyRequests}
    body = json.dumps({"error": {"message": message, "type": "x", "param": None, "code": None}})
    return kinds[status](text=body, content_type="application/json")


class LightWorker:
    def __init__(self, name: str, redis: str) -> None:
        self._name = name
        self._registry = Registry(connect(redis))
        self._incarnation = uuid.uuid4().hex
        self._pages = Pages()

    async def run(self) -> None:
        """Runs until its standard input ends."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/healthz", self._state)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        print(port, flush=True)
        left = asyncio.Event()

        def look() -> None:
            if not os.read(0, 4096):
                left.set()

        asyncio.get_running_loop().add_reader(0, look)
        beating = asyncio.create_task(self._beat(f"http://127.0.0.1:{port}"))
        await left.wait()
        beating.cancel()
        await runner.cleanup()

    async def _beat(self, url: str) -> None:
        while True:
            pages = self._pages
            heart = Heartbeat(
                replica=self._name,
                incarnation=self._incarnation,
                url=url,
                model=MODEL,
                state=ReplicaState.READY,
                endpoints=("/v1/completions",),
                capacity_tokens=PAGES * PAGE_TOKENS,
                pinned_tokens=(PAGES - pages.free) * PAGE_TOKENS,
                max_requests=MAX_RUNNING + MAX_WAITING,
                running=pages.running,
                waiting=pages.waiting,
            )
            with suppress(FleetUnavailable, TimeoutError):
                async with asyncio.timeout(2.0):
                    await self._registry.beat(POOL, heart)
            await asyncio.sleep(BEAT_S)

    async def _state(self, _: web.Request) -> web.Response:
        pages = self._pages
        used = PAGES - pages.free
        return web.json_response(
            {"pages": used, "running": pages.running, "waiting": pages.waiting}
        )

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt, count = body.get("prompt"), body.get("max_tokens", 16)
        if not isinstance(prompt, str) or not isinstance(count, int):
            raise refusal(400, "prompt is a text, max_tokens a number")
        prompt_tokens = len(prompt) // 4 + 1
        async with self._pages.hold(prompt_tokens + count):
            tokens = tokens_of(prompt, count)
            told = {"x-pando-prompt-tokens": f"{prompt_tokens}", "x-pando-cached-tokens": "0"}
            if body.get("stream"):
                return await self._stream(request, body, tokens, told)
            await asyncio.sleep(TOKEN_S * count)
            choice = {"index": 0, "text": "".join(tokens), "finish_reason": "length"}
            return web.json_response({"choices": [choice]}, headers=told)

    async def _stream(
        self, request: web.Request, body: dict[str, Any], tokens: list[str], told: dict[str, str]
    ) -> web.StreamResponse:
        resumed: list[int] = body.get("resume_token_ids", [])
        if resumed:
            told["x-pando-resumed-tokens"] = str(len(resumed))
        response = web.StreamResponse(headers={"content-type": "text/event-stream", **told})
        response.enable_chunked_encoding()
        await response.prepare(request)

        async def say(text: str, ids: list[int], finish: str | None = None) -> None:
            choice = {"index": 0, "text": text, "finish_reason": finish, "token_ids": ids}
            event = {"id": "c", "created": 1, "model": MODEL, "choices": [choice]}
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")

        if resumed:
            await say("".join(tokens[: len(resumed)]), resumed)
        for number in range(len(resumed), len(tokens)):
            await asyncio.sleep(TOKEN_S)
            await say(tokens[number], [number])
        await say("", [], "length")
        await response.write(b"data: [DONE]\n\n")
        return response


if __name__ == "__main__":
    asyncio.run(LightWorker(**json.loads(sys.argv[1])).run())
