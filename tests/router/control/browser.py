"""The machine's Chromium, headless, driven by Playwright; nothing is downloaded."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

found = next(filter(None, map(shutil.which, NAMES)), None)
# What Playwright makes belongs to the event loop that made it.
in_browser = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    async with chromium() as one:
        shared = await one.new_context()  # the one that `tab` uses
        await shared.new_page()  # keeps its window open: each new one costs half a second of CPU
        yield one


@asynccontextmanager
async def tab(
    browser: Browser,
    *,
    viewport: dict[str, int] | None = None,
    color_scheme: str | None = None,
    **options: Any,
) -> AsyncIterator[Page]:
    """A new tab. Tests share a context unless they have `options` for theirs, as Chromium takes a
    second of CPU to make one. A tab has its own sessionStorage, and servers differ in their ports,
    so no test sees what another one stored."""
    own = await browser.new_context(**options) if options else None
    page = await (own or browser.contexts[0]).new_page()
    try:
        if viewport:
            await page.set_viewport_size(viewport)  # type: ignore[arg-type]
        if color_scheme:
            await page.emulate_media(color_scheme=color_scheme)  # type: ignore[arg-type]
        yield page
    finally:
        await (own or page).close()


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # Root, the user of most containers, cannot use Chromium's sandbox.
        browser = await playwright.chromium.launch(
            executable_path=found, chromium_sandbox=os.geteuid() != 0
        )
        try:
            yield browser
        finally:
            await browser.close()
