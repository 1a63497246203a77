"""A headless Chromium of the machine, driven by Playwright: nothing is downloaded.

To start one costs more than most tests do with it, so the tests of a module share the fixture
`browser`, and each opens a context of its own, with nothing of the others'. A folder's conftest.py
imports the fixture; its tests carry the mark `in_browser`.
"""

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
        # Root, as in most containers, cannot have Chromium's sandbox.
        browser = await playwright.chromium.launch(
            executable_path=found, chromium_sandbox=os.geteuid() != 0
        )
        try:
            yield browser
        finally:
            await browser.close()
