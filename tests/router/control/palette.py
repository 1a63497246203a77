"""Colours of style sheets, and how far apart they are."""

import colorsys
import re
from pathlib import Path

from pando_router import pages

MEANT = ("one", "two", "bad", "good", "pinned")
"""Variables of all pages' colours that mean something: docs/observability.md says what."""


def variables(part: Path, scheme: int) -> dict[str, str]:
    """The colours of a style sheet's first (light) or second (dark) `:root`."""
    roots = re.findall(r":root \{(.*?)\}", part.read_text(), re.DOTALL)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", roots[scheme]))


def shared(scheme: int) -> dict[str, str]:
    """Those of all pages."""
    return variables(Path(pages.__file__).parent / "shared/style.css", scheme)


def degrees_apart(one: str, other: str) -> float:
    """Of their hues; 180 where one is a grey."""
    a, b = _hue(one), _hue(other)
    return 180.0 if a is None or b is None else abs((a - b + 180) % 360 - 180)


def _hue(colour: str) -> float | None:
    """In degrees; None for a grey."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    turn, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    return 360 * turn if saturation > 0.2 else None
