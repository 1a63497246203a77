"""Takes docs/images/chat.png: python -m tools.take_chat_picture [folder].

Starts `pando up` with two workers and SmolLM2 on a free port, and holds two conversations of two
turns side by side in the Chromium of this machine. With a folder, it puts further pictures there:
the same in the dark, and one conversation on a phone.
"""

import asyncio
import signal
import sys
from pathlib import Path

from playwright.async_api import Browser, Locator, Page, ViewportSize

from pando.up.models import SMOLLM2
from tests.e2e.up_process import UpProcess
from tests.router.chat.talking import PHONE
from tests.router.control.browser import chromium

PICTURE = Path(__file__).parents[1] / "docs/images" / "chat.png"
SIZE: ViewportSize = {"width": 1280, "height": 940}
CONVERSATIONS = (
    (
        "You are a helpful assistant who knows Python well. You answer each question about Python"
        " with one function and nothing else. The function is for somebody who has just begun to"
        " program: it uses simple words, it is complete, and you say in one sentence what it does.",
        ("Write a function that adds two numbers.", "Now one that multiplies them."),
    ),
    (
        "You are a helpful assistant who knows the cities of the world. You answer questions of"
        " travellers about capitals, rivers and food with one or two sentences. Your answers are"
        " correct, friendly and short, so they can be read while walking through a busy street.",
        ("What is the capital of Japan?", "What do people eat there?"),
    ),
)
LONGEST_MS = 120_000  # of an answer, on a busy machine


async def converse(page: Page) -> None:
    """Both conversations, turn by turn; both replicas have work at the same time."""
    await page.wait_for_selector(".message")
    await page.click("#side")
    panes = [page.locator(".pane").nth(number) for number in range(2)]
    for pane, (system, _) in zip(panes, CONVERSATIONS, strict=True):
        await begin(pane, system)
    for turn in range(2):
        for pane, (_, questions) in zip(panes, CONVERSATIONS, strict=True):
            await send(pane, questions[turn])
        await settled(page, 2 * (turn + 1))


async def begin(pane: Locator, system: str) -> None:
    await pane.locator(".settings summary").click()
    await pane.locator(".system").fill(system)
    await pane.locator(".temperature").fill("0")
    await pane.locator(".settings summary").click()


async def send(pane: Locator, text: str) -> None:
    await pane.locator(".message").fill(text)
    await pane.locator(".message").press("Enter")


async def settled(page: Page, count: int) -> None:
    """Waits until so many answers have ended and are explained."""
    await page.locator("[aria-busy]").first.wait_for(state="detached", timeout=LONGEST_MS)
    await page.locator(".why summary span").nth(count - 1).wait_for()


async def photograph(url: str, folder: Path | None) -> None:
    async with chromium() as browser:
        page = await browser.new_page(viewport=SIZE)
        await page.goto(f"{url}/chat")
        await converse(page)
        await page.locator(".why summary").last.click()
        await page.screenshot(path=PICTURE)
        if folder is not None:
            await page.emulate_media(color_scheme="dark")
            await page.screenshot(path=folder / "dark.png")
            await phone(browser, url, folder)


async def phone(browser: Browser, url: str, folder: Path) -> None:
    page = await (await browser.new_context(**PHONE)).new_page()
    await page.goto(f"{url}/chat")
    await page.wait_for_selector(".message")
    pane, (system, questions) = page.locator(".pane"), CONVERSATIONS[1]
    await begin(pane, system)
    await send(pane, questions[0])
    await settled(page, 1)
    await page.screenshot(path=folder / "phone.png")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with UpProcess("--workers", "2", "--model", SMOLLM2) as up:
        up.wait_ready()
        asyncio.run(photograph(up.url, folder))
        up.send(signal.SIGINT)
        up.wait_end()


if __name__ == "__main__":
    main()
