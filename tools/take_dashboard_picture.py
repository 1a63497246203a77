"""Takes docs/images/dashboard.png: python -m tools.take_dashboard_picture [seconds].

Starts `pando up` with two workers on a free port, holds conversations with it for some time (150 s
by default), and takes a screenshot of the dashboard in this machine's Chromium meanwhile.
"""

import asyncio
import random
import signal
import sys
from pathlib import Path

import aiohttp

from pando.up.models import SMOLLM2
from tests.e2e.up_process import UpProcess
from tests.router.control.browser import chromium
from tools.png import save

PICTURE = Path(__file__).parents[1] / "docs/images" / "dashboard.png"
USERS = 6
TURNS = ("What is it good for?", "Give an example.", "What goes wrong most often?", "And then?")
SUBJECTS = ("cooking", "sailing", "chess", "gardening", "astronomy", "woodwork")


async def converse(session: aiohttp.ClientSession, url: str, rng: random.Random) -> None:
    """Holds conversations of a few turns, one after the other, about one of few subjects."""
    while True:
        subject = rng.choice(SUBJECTS)
        messages = [{"role": "system", "content": f"You are a patient teacher of {subject}. " * 30}]
        for turn in range(rng.randint(2, len(TURNS))):
            messages.append({"role": "user", "content": TURNS[turn]})
            body = {"model": SMOLLM2, "messages": messages, "max_tokens": 48, "stream": True}
            async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                await answer.read()
            messages.append({"role": "assistant", "content": "It depends on what you want."})
            await asyncio.sleep(rng.expovariate(2.0))


async def photograph(url: str, seconds: float) -> None:
    async with aiohttp.ClientSession() as session, chromium() as browser:
        users = [
            asyncio.create_task(converse(session, url, random.Random(number)))
            for number in range(USERS)
        ]
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        await page.goto(f"{url}/dashboard")
        await asyncio.sleep(seconds)
        await page.hover("#requests")  # it stands still then
        await page.click("#requests tbody tr")
        await page.wait_for_selector("#explanation table")
        await page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        await save(page, PICTURE)
        for user in users:
            user.cancel()
        await asyncio.wait(users)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 150.0
    with UpProcess("--model", SMOLLM2, "--workers", "2", "--max-total-tokens", "20000") as up:
        up.wait_ready()
        asyncio.run(photograph(up.url, seconds))
        up.send(signal.SIGINT)
        up.wait_end()


if __name__ == "__main__":
    main()
