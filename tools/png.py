"""Saves a screenshot as a small PNG: few colours, as pages have."""

import io
from pathlib import Path

from PIL import Image
from playwright.async_api import Page

COLOURS = 256


async def save(page: Page, path: Path, *, full_page: bool = True) -> None:
    shot = Image.open(io.BytesIO(await page.screenshot(full_page=full_page))).convert("RGB")
    # By coverage, or a colour of few pixels would become its neighbour.
    few = shot.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
