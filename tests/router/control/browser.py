"""A headless Chromium of the machine, driven by Playwright: nothing is downloaded."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

found = next(filter(None, map(shutil.which, NAMES)), None)
needs_browser = pytest.mark.skipif(
    found is None, reason=f"no browser: none of {', '.join(NAMES)} is installed"
)


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
