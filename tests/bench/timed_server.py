"""A real HTTP server whose tokens come at known times of a clock that it shares with its client."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


class Clock:
    """Shows the time that the server has set, and counts how often the client looked at it. So all
    times are exact, however busy the machine is."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        self._looked = asyncio.Event()

    def __call__(self) -> float:
        self.looks += 1
        self._looked.set()
        return self.now

    async def looked(self, times: int) -> None:
        """Waits until the client has looked so often."""
        while self.looks < times:
            self._looked.clear()
            await self._looked.wait()


@dataclass
class Plan:
    """How the server answers."""

    first_s: float = 0.0  # from request to first token, by the clock
    gap_s: float = 0.0  # between tokens, by the clock
    together: int = 1  # so many requests run in step: none gets a token before all are due
    silent: bool = False  # no token ever comes
    cached_tokens: int | None = None
    status: int = 200
    error_after: int | None = None  # an error event instead of this token
    cut_after: int | None = None  # the connection is closed instead of this token
    usage: bool = True
    prompt_tokens: int | None = None  # for any prompt


@dataclass
class TimedServer:
    plan: Plan
    clock: Clock | None = None  # None: tokens come at once
    bodies: list[dict[str, Any]] = field(default_factory=list)
    written: list[list[float]] = field(default_factory=list)  # of each request's tokens
    running: int = 0
    most_running: int = 0
    url: str = ""

    def __post_init__(self) -> None:
        self._step = asyncio.Barrier(self.plan.together)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "timed"}]})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        arrived = self.clock.now if self.clock else 0.0
        body = await request.json()
        self.bodies.append(body)
        written: list[float] = []
        self.written.append(written)
        plan = self.plan
        if plan.status != 200:
            return web.json_response({"error": {"message": "no"}}, status=plan.status)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self._stream(request, body, plan, arrived, written)
        finally:
            self.running -= 1

    async def _stream(
        self,
        request: web.Request,
        body: dict[str, Any],
        plan: Plan,
        arrived: float,
        written: list[float],
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        chat = "messages" in body
        for token in range(body["max_tokens"]):
            if plan.silent:
                await asyncio.Event().wait()
            await self._step.wait()
            at = arrived + plan.first_s + token * plan.gap_s
            if self.clock:
                self.clock.now = at
            if token == plan.cut_after:
                assert request.transport is not None
                request.transport.close()
                return response
            if token == plan.error_after:
                await _event(response, {"error": {"message": "broke"}})
                break
            piece: dict[str, Any] = {"delta": {"content": "a "}} if chat else {"text": "a "}
            last = token == body["max_tokens"] - 1
            await _event(
                response, {"choices": [piece | {"finish_reason": "length"} if last else piece]}
            )
            written.append(at)
            if self.clock:
                await self._all_seen(self.clock)
        if plan.usage:
            await _event(response, {"choices": [], "usage": self._usage(body)})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _all_seen(self, clock: Clock) -> None:
        """Waits until the client has looked at the clock when it sent each request, for each token
        so far, and when a request ended."""
        tokens = sum(map(len, self.written))
        ended = len(self.written) - self.running
        await clock.looked(len(self.written) + tokens + ended)

    def _usage(self, body: dict[str, Any]) -> dict[str, Any]:
        """A word is two tokens, and the chat template adds seven."""
        texts = [m["content"] for m in body["messages"]] if "messages" in body else [body["prompt"]]
        counted = 2 * len(" ".join(texts).split()) + 7 * ("messages" in body)
        usage: dict[str, Any] = {
            "prompt_tokens": self.plan.prompt_tokens or counted,
            "completion_tokens": body["max_tokens"],
        }
        if self.plan.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.plan.cached_tokens}
        return usage


async def _event(response: web.StreamResponse, value: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(value).encode() + b"\n\n")


@asynccontextmanager
async def timed_server(
    plan: Plan | None = None, clock: Clock | None = None
) -> AsyncIterator[TimedServer]:
    server = TimedServer(plan or Plan(), clock)
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/chat/completions", server.answer)
    app.router.add_post("/v1/completions", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()
