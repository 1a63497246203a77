"""Takes docs/images/dashboard-*.png: python -m tools.take_fleet_pictures [NAME ...].

A real router with simulated replicas, whose heartbeats are in a real Valkey, under some load, in
this machine's Chromium: `lost` has one replica that died, `300` has as many replicas, `phone` is
375 pixels wide. Each takes half a minute.
"""

import argparse
import asyncio
import random
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser

from tests.fleet.redis_server import VALKEY, RedisServer
from tests.router.control.browser import chromium
from tests.router.control.crowd import Crowd
from tests.router.world import RouterClient, completion, serving
from tools.png import save

IMAGES = Path(__file__).parents[1] / "docs/images"
BUSY_S = 14.0  # before and after replicas are lost


@dataclass(frozen=True, slots=True)
class Scene:
    pools: Mapping[str, int]
    lost: tuple[str, ...] = ()
    width: int = 1280
    height: int | None = None  # of the part that is shown; None: all


SCENES = {
    "lost": Scene({"chat": 4}, ("chat-2",)),
    "300": Scene({"chat": 200, "code": 100}, ("chat-7", "chat-8", "code-77"), height=2300),
    "phone": Scene({"chat": 3}, width=375, height=2900),
}


async def ask(router: RouterClient, pools: tuple[str, ...], rng: random.Random) -> None:
    """Conversations about few subjects, and now and then a model that is not there."""
    while True:
        model = rng.choice((*(f"{pool}-model" for pool in pools for _ in range(10)), "chat-modle"))
        subject = rng.randrange(8)
        prompt = f"Subject {subject}. " * 60 + f"Question {rng.randrange(1000)}?"
        await router.post("/v1/completions", {**completion(prompt), "model": model})
        await asyncio.sleep(rng.expovariate(20.0))


async def generate(crowd: Crowd, rng: random.Random) -> None:
    """Counts the tokens that replicas would have read and written."""
    while True:
        for name in list(crowd.hearts)[:12]:
            if name not in crowd.hearts:
                continue
            beat, tokens = crowd.hearts[name][1], rng.randint(150, 400)
            await crowd.say(
                name,
                prompt_tokens_total=beat.prompt_tokens_total + 4 * tokens,
                output_tokens_total=beat.output_tokens_total + tokens,
                inter_tokens_total=beat.inter_tokens_total + tokens,
                inter_token_seconds_total=beat.inter_token_seconds_total
                + tokens * rng.uniform(0.015, 0.025),
            )
        await asyncio.sleep(1.0)


async def photograph(browser: Browser, name: str, scene: Scene) -> None:
    rng = random.Random(1)
    with closing(RedisServer(VALKEY)) as server:
        server.start()
        async with Crowd(server.url, scene.pools) as crowd, serving(server.url) as router:
            page = await browser.new_page(viewport={"width": scene.width, "height": 900})
            await page.goto(f"{router.url}/dashboard")
            work = [
                asyncio.create_task(ask(router, tuple(scene.pools), rng)),
                asyncio.create_task(generate(crowd, rng)),
            ]
            await asyncio.sleep(BUSY_S)
            crowd.lose(*scene.lost)
            await asyncio.sleep(BUSY_S)
            await page.hover("#requests")  # it stands still then
            await page.click("#requests tbody tr")
            await page.wait_for_selector("#explanation table")
            await page.mouse.move(0, 0)
            await page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
            if scene.height:
                await page.set_viewport_size({"width": scene.width, "height": scene.height})
            await asyncio.sleep(2.0)
            path = IMAGES / f"dashboard-{name}.png"
            await save(page, path, full_page=scene.height is None)
            for task in work:
                task.cancel()
            await asyncio.wait(work)
            await page.close()


async def take(names: list[str]) -> None:
    async with chromium() as browser:
        for name in names:
            await photograph(browser, name, SCENES[name])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*SCENES, []], default=[], metavar="NAME")
    asyncio.run(take(parser.parse_args().names or list(SCENES)))


if __name__ == "__main__":
    main()
