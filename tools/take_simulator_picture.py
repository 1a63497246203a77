"""Takes docs/images/simulator.png: python -m tools.take_simulator_picture pando-sim/report.html.

Takes a screenshot of the report's beginning with this machine's Chromium.
"""

import asyncio
import sys
from pathlib import Path

from tests.router.control.browser import chromium
from tools.png import save

PICTURE = Path(__file__).parents[1] / "docs/images" / "simulator.png"
WIDTH, HEIGHT = 1280, 1500


async def photograph(report: str) -> None:
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        await page.goto(report)
        await save(page, PICTURE, full_page=False)


if __name__ == "__main__":
    asyncio.run(photograph(Path(sys.argv[1]).absolute().as_uri()))
