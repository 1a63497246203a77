"""Saves a screenshot as a small PNG: few colours, as pages have."""

import io
from collections import Counter
from pathlib import Path

from PIL import Image
from playwright.async_api import Page

COLOURS = 256


async def save(page: Page, path: Path, *, full_page: bool = True) -> None:
    shot = Image.open(io.BytesIO(await page.screenshot(full_page=full_page))).convert("RGB")
    with_few_colours(shot).save(path, optimize=True)


def with_few_colours(shot: Image.Image) -> Image.Image:
    """Each colour that is left is the commonest of those it stands for: the page's own stay."""
    # By coverage, or a colour of few pixels would become its neighbour.
    few = shot.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    palette = few.getpalette() or []
    pairs = Counter(zip(few.tobytes(), zip(*[iter(shot.tobytes())] * 3, strict=True), strict=True))
    for (index, colour), _ in reversed(pairs.most_common()):  # the commonest comes last
        palette[3 * index : 3 * index + 3] = colour
    few.putpalette(palette)
    return few
