"""The dashboard in a tab of a browser, and a fleet with something to show."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Page

from pando_fleet.images.rule import ImageRule
from tests.router.control.browser import tab
from tests.router.world import Replica, RouterClient, cached, completion, serving, until

PATIENCE_MS = 60_000
PROMPT = "".join(f"{i:07d} " for i in range(128))  # 4 chunks
LINES = "document.querySelectorAll('#figures path[d*=L]').length"


@asynccontextmanager
async def opened(
    browser: Browser, url: str, **options: Any
) -> AsyncIterator[tuple[Page, list[str]]]:
    """The page, and its console's errors."""
    complaints: list[str] = []
    async with tab(browser, **options) as page:
        page.set_default_timeout(PATIENCE_MS)
        page.on(
            "console",
            lambda said: complaints.append(said.text) if said.type != "log" else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.add_init_script(
            "window.shifted = 0; new PerformanceObserver((list) => {"
            " for (const entry of list.getEntries()) {"
            " if (!entry.hadRecentInput) window.shifted += entry.value;"
            "}"
            "}).observe({ type: 'layout-shift', buffered: true });"
        )
        await page.goto(f"{url}/dashboard")
        yield page, complaints


async def comes(page: Page, condition: str) -> None:
    """Polls from outside, as the page's policy forbids evaluating code in it."""
    await until(lambda: page.evaluate(condition), condition)


@asynccontextmanager
async def busy_fleet(redis_url: str, **settings: Any) -> AsyncIterator[RouterClient]:
    """Two replicas and a request every 50 ms."""
    kv: dict[str, Any] = {
        "capacity_tokens": 100_000,
        "pinned_tokens": 20_000,
        "cached_tokens": 50_000,
        "image_rule": ImageRule(kind="fixed", tokens=576),
    }
    async with (
        Replica(redis_url, "a", **kv) as a,
        Replica(redis_url, "b", **kv) as b,
        serving(redis_url, **settings) as router,
    ):
        a.answer = b.answer = cached(60, 256)

        async def ask() -> None:
            while True:
                await router.post("/v1/completions", completion(PROMPT))
                await asyncio.sleep(0.05)

        await router.ready("a", "b")
        asking = asyncio.create_task(ask())
        try:
            yield router
        finally:
            asking.cancel()
            await asyncio.wait([asking])
