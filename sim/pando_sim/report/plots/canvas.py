"""Makes an SVG from a matplotlib figure, with the page's colours.

Matplotlib gets placeholder colours, each for a CSS variable, and the SVG gets `var(--ink)` in place
of `#000001`. Text stays text. Lines and areas with the gid `run-3` become elements of the class
`run-3`, by which the page can hide them.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pando_sim.records import Event

WIDTH, HEIGHT = 4.6, 2.5  # inches; at 100 dots each, small enough for a phone
LEFT, RIGHT, TOP, BOTTOM = 0.6, 0.12, 0.2, 0.3  # inches around the axes
RUN_COLOURS = 5  # the number of variables --run-0 …; more would not be told apart
DASHES = ("-", "--", ":", "-.")  # of the first RUN_COLOURS runs, the next ones, …

_VARIABLES = (
    "ink",
    "faint",
    "grid",
    "pinned",
    "cached",
    "free",
    "fault",
    *(f"run-{number}" for number in range(RUN_COLOURS)),
)
_STANDS_FOR = {f"#0000{number + 1:02x}": name for number, name in enumerate(_VARIABLES)}
COLOUR = {name: colour for colour, name in _STANDS_FOR.items()}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pando",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.edgecolor": COLOUR["faint"],
    "axes.labelcolor": COLOUR["faint"],
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": COLOUR["grid"],
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "text.color": COLOUR["ink"],
    "xtick.color": COLOUR["faint"],
    "ytick.color": COLOUR["faint"],
    "ytick.left": False,
    "xtick.labelcolor": COLOUR["faint"],
    "ytick.labelcolor": COLOUR["faint"],
}
_MOST_MARKS = 20  # of events in one plot


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    title: str
    caption: str
    svg: str


def run_colour(number: int) -> str:
    return COLOUR[f"run-{number % RUN_COLOURS}"]


def run_dashes(number: int) -> str:
    """Runs of one colour differ by their dashes."""
    return DASHES[number // RUN_COLOURS % len(DASHES)]


class Canvas:
    """One figure with one pair of axes; draw on it within the `with` block."""

    def __init__(self, name: str, *, height: float = HEIGHT, left: float = LEFT) -> None:
        """`left`: inches to the left of the axes."""
        self._name = name  # distinguishes it from the page's other figures
        with matplotlib.rc_context(_STYLE):
            self._figure = Figure(figsize=(WIDTH, height))
            self.axes: Axes = self._figure.add_subplot()
            # A layout that measures its texts takes three times as long as everything else.
            self._figure.subplots_adjust(
                left=left / WIDTH,
                right=1 - RIGHT / WIDTH,
                bottom=BOTTOM / height,
                top=1 - TOP / height,
            )

    def plot(self, title: str, caption: str, alt: str) -> Plot:
        return Plot(title=title, caption=caption, svg=self._svg(title, alt))

    def _svg(self, title: str, alt: str) -> str:
        buffer = io.StringIO()
        with matplotlib.rc_context(_STYLE | {"svg.hashsalt": self._name}):
            self._figure.patch.set_visible(False)
            self.axes.patch.set_visible(False)
            self._figure.savefig(buffer, format="svg", metadata={"Date": None})
        return _for_page(buffer.getvalue(), self._name, title, alt)


def titled(svg: str, names: Sequence[str]) -> str:
    """Gives what belongs to each run a name, which browsers show under the pointer."""
    return re.sub(
        r'(<g class="run-(\d+)"[^>]*>)',
        lambda found: f"{found[1]}<title>{escape(names[int(found[2])])}</title>",
        svg,
    )


def mark_events(axes: Axes, events: Sequence[Event]) -> None:
    """Draws a vertical line for each of the first events, with its number above it."""
    for number, event in enumerate(events[:_MOST_MARKS], start=1):
        axes.axvline(event.at_s, color=COLOUR["fault"], linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(
            str(number),
            (event.at_s, 1.0),
            xycoords=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
            color=COLOUR["fault"],
            fontsize=8,
        )


def _for_page(svg: str, name: str, title: str, alt: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="(run-\d+)', r'<g class="\1" id="\1', svg)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", svg)
    for identity in sorted(used, key=len, reverse=True):
        svg = svg.replace(f'"{identity}"', f'"{name}-{identity}"')
        svg = svg.replace(f"#{identity}", f"#{name}-{identity}")
    svg = re.sub(r"#0000[0-9a-f]{2}\b", lambda found: f"var(--{_STANDS_FOR[found[0]]})", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]+", r"font-size: \1", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    view_box = re.search(r'viewBox="([^"]+)"', svg)
    assert view_box, "matplotlib writes a viewBox"
    opening = (
        f'<svg viewBox="{view_box[1]}" role="img" aria-label="{_escaped(f"{title}. {alt}")}"'
        ' xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return opening + svg[svg.index(">") + 1 :]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
