"""A load's plot: replica-hours against violations, one curve per scaler, one panel per start time.

It is plain SVG text, so that it works on light and dark pages and changes only when numbers do.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.simulator.scaling_days.contenders import KNOBS
from bench.simulator.scaling_days.runs import Result

PANEL, GAP, LEFT, RIGHT, TOP, HEIGHT, BOTTOM = 400, 70, 60, 16, 64, 300, 46
INK, FAINT, GRID = "#24292f", "#6e7781", "#d8dee4"
COLOURS = {
    "pando": "#0969da",
    "pando, queueWait": "#8250df",
    "hpa_queue": "#bc4c00",
    "hpa_kv": "#1a7f37",
    "knative": "#cf222e",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 to `most` along an axis."""

    most: float
    step: float

    @classmethod
    def of(cls, values: Iterable[float], parts: int) -> "Scale":
        most = max(values)
        magnitude = float(10 ** math.floor(math.log10(most / parts)))
        step = next(n * magnitude for n in (1, 2, 5, 10) if n * magnitude * parts >= most)
        return cls(math.ceil(most / step) * step, step)

    def ticks(self) -> list[float]:
        return [number * self.step for number in range(round(self.most / self.step) + 1)]


def draw(results: Sequence[Result]) -> str:
    """Draws the results of one load."""
    starts = sorted({one.start_s for one in results})
    across = Scale.of((one.replica_hours for one in results), 6)
    up = Scale.of((100 * one.violations for one in results), 6)
    width = LEFT + len(starts) * PANEL + (len(starts) - 1) * GAP + RIGHT
    parts = [*_legend()]
    for number, start_s in enumerate(starts):
        here = [one for one in results if one.start_s == start_s]
        parts += _panel(LEFT + number * (PANEL + GAP), start_s, here, across, up)
    height = TOP + HEIGHT + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            ' font-family="system-ui, sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def write(path: Path, results: Sequence[Result]) -> None:
    path.write_text(draw(results), encoding="utf-8")


def _legend() -> list[str]:
    parts, x = [], float(LEFT)
    for scaler, colour in COLOURS.items():
        parts.append(f'<circle cx="{x + 5:g}" cy="16" r="5" fill="{colour}"/>')
        parts.append(_text(x + 15, 20, scaler, INK))
        x += 40 + 7 * len(scaler)
    return parts


def _panel(
    left: int, start_s: float, results: Sequence[Result], across: Scale, up: Scale
) -> list[str]:
    def x(hours: float) -> float:
        return left + hours / across.most * PANEL

    def y(percent: float) -> float:
        return TOP + HEIGHT * (1 - percent / up.most)

    parts = [_text(left, TOP - 12, f"A replica starts in {start_s:g} s", INK, weight=600)]
    for tick in up.ticks():
        parts.append(_line(left, y(tick), left + PANEL, y(tick)))
        parts.append(_text(left - 6, y(tick) + 4, f"{tick:g} %", FAINT, "end"))
    base = TOP + HEIGHT
    parts += [_text(x(at), base + 16, f"{at:g}", FAINT, "middle") for at in across.ticks()]
    parts.append(_text(left + PANEL / 2, base + 36, "replica-hours of the day", FAINT, "middle"))
    for scaler, colour in COLOURS.items():
        curve = sorted((one for one in results if one.scaler == scaler), key=lambda one: one.knob)
        places = [(x(one.replica_hours), y(100 * one.violations), one) for one in curve]
        if not places:
            continue
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _ in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for px, py, one in places:
            label = (
                f"{scaler}, {KNOBS[scaler]} {one.knob:g}: {one.replica_hours:.1f} replica-hours,"
                f" {100 * one.violations:.2f} % out of time"
            )
            parts.append(
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}"><title>{label}</title>'
                "</circle>"
            )
            parts.append(_text(px + 6, py - 5, f"{one.knob:g}", colour))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{GRID}"/>'


def _text(
    x: float, y: float, words: str, colour: str, anchor: str = "start", weight: int = 400
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{words}</text>'
    )
