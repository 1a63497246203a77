"""The machine's Chromium, headless, driven by Playwright; nothing is downloaded."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

found = next(filter(None, map(shutil.which, NAMES)), None)
# What Playwright makes belongs to the event loop that made it.
in_browser = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    async with chromium() as one:
        yield one


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
