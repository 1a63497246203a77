"""The chat page in a browser, with a router whose replica gives the answers that a test sets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from playwright.async_api import Browser, Page

from tests.router.control.browser import tab
from tests.router.world import Replica, RouterClient, fleet, until

PATIENCE_MS = 60_000
PHONE: dict[str, Any] = {
    "viewport": {"width": 375, "height": 740},
    "is_mobile": True,
    "has_touch": True,
}


class Speech:
    """An answer as OpenAI's events: `say` sends text, `end` ends it with usage, `cut` cuts it."""

    def __init__(self, *pieces: str, complete: bool = True) -> None:
        self._steps: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_cut = False
        self.cached_tokens, self.prompt_tokens = 0, 10
        for piece in pieces:
            self.say(piece)
        if complete:
            self.end()

    def say(self, piece: str) -> None:
        self._steps.put_nowait(piece)

    def end(self) -> None:
        self._steps.put_nowait(None)

    def cut(self) -> None:
        self._is_cut = True
        self.end()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        tokens = 0
        while (piece := await self._steps.get()) is not None:
            tokens += 1
            await self._send(response, choices=[{"index": 0, "delta": {"content": piece}}])
        if self._is_cut:
            assert request.transport is not None
            request.transport.close()
            return response
        await self._send(response, choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
        usage = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
        await self._send(response, choices=[], usage=usage)
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _send(self, response: web.StreamResponse, **event: Any) -> None:
        await response.write(b"data: %s\n\n" % json.dumps(event).encode())


@asynccontextmanager
async def opened(
    browser: Browser, url: str, **options: Any
) -> AsyncIterator[tuple[Page, list[str], list[str]]]:
    """The page, its console's errors, and the URLs of all its requests."""
    complaints: list[str] = []
    asked: list[str] = []
    async with tab(browser, **options) as page:
        page.set_default_timeout(PATIENCE_MS)
        page.on(
            "console", lambda said: complaints.append(said.text) if said.type != "log" else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(f"{url}/chat")
        yield page, complaints, asked


@asynccontextmanager
async def talking(
    browser: Browser,
    redis_url: str,
    *,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Page, RouterClient, Replica, list[str]]]:
    """The page, on a router with one replica `a`, and its console's errors."""
    given = {"chat_page": True, **(settings or {})}
    async with (
        fleet(redis_url, "a", **given) as (router, [a]),
        opened(browser, router.url, **options) as (page, complaints, _),
    ):
        await page.wait_for_selector(".message")
        yield page, router, a, complaints


async def say(page: Page, text: str) -> None:
    """Sends a message in the visible conversation, or in the first of two."""
    await page.locator(".message").first.fill(text)
    await page.locator(".message").first.press("Enter")


async def answered(page: Page, count: int = 1) -> None:
    """Waits until this many answers have ended."""

    async def ended() -> bool:
        articles = page.locator("article:not([aria-busy])")
        return await articles.count() >= count and not await page.locator("[aria-busy]").count()

    await until(ended, f"{count} answers")


def received(replica: Replica, index: int = -1) -> dict[str, Any]:
    """The body of a request that the replica got."""
    body: dict[str, Any] = json.loads(replica.received[index].body)
    return body
