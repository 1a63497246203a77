"""Draws a run of tests/cluster/test_scaling.py: python -m tools.plot_scaling RUN.json PICTURE.svg.

Three panels over the same time: clients and replicas, the pool's pressure with its target, and each
stream's time to its first event. tests/cluster/timeline.py writes the run's JSON.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH, LEFT, RIGHT, TOP = 900, 64, 16, 40
HEIGHT, GAP = 150, 46  # of a panel, and between two
INK, FAINT, GRID = "#24292f", "#6e7781", "#d8dee4"
BLUE, ORANGE, GREEN, RED = "#0969da", "#bc4c00", "#1a7f37", "#cf222e"

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the panels, from the top; its values range from 0 to `most`."""

    index: int
    title: str
    most: float
    seconds: float  # of the whole run

    @property
    def bottom(self) -> float:
        return TOP + self.index * (HEIGHT + GAP) + HEIGHT

    def x(self, at: float) -> float:
        return LEFT + at / self.seconds * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self.bottom - min(value, self.most) / self.most * HEIGHT

    def frame(self, *, unit: str = "") -> list[str]:
        """Title, grid and the numbers at both axes."""
        lines = [text(LEFT, self.bottom - HEIGHT - 10, self.title, INK, weight=600)]
        step = nice_step(self.most, 4)
        for count in range(math.floor(self.most / step + 1e-9) + 1):
            y = self.y(count * step)
            lines.append(line(LEFT, y, WIDTH - RIGHT, y, GRID))
            lines.append(text(LEFT - 8, y + 4, f"{count * step:g}{unit}", FAINT, anchor="end"))
        step = nice_step(self.seconds, 9)
        for count in range(math.floor(self.seconds / step) + 1):
            x = self.x(count * step)
            lines.append(text(x, self.bottom + 16, f"{count * step:g} s", FAINT, anchor="middle"))
        return lines

    def steps(self, points: Sequence[Point], colour: str, dash: str = "") -> str:
        """Draws values that each hold until the next one."""
        path, last = "", None
        for at, value in points:
            x, y = self.x(at), self.y(value)
            path += f"M{x:.1f} {y:.1f}" if last is None else f"H{x:.1f}V{y:.1f}"
            last = value
        return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" {dash}/>'

    def dots(self, points: Sequence[Point], colour: str) -> list[str]:
        return [
            f'<circle cx="{self.x(at):.1f}" cy="{self.y(value):.1f}" r="2" fill="{colour}"'
            ' fill-opacity="0.55"/>'
            for at, value in points
        ]


def nice_step(most: float, parts: int) -> float:
    """1, 2 or 5 times a power of ten, so that there are about `parts` steps."""
    magnitude = float(10 ** math.floor(math.log10(most / parts)))
    return next(step for n in (1, 2, 5, 10) if (step := n * magnitude) * parts >= most)


def line(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {dash}/>'
    )


def text(
    x: float, y: float, words: str, colour: str, anchor: str = "start", weight: int = 400
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{words}</text>'
    )


def legend(panel: Panel, entries: Sequence[tuple[str, str]]) -> list[str]:
    """Above the panel at the right, the last entry outermost."""
    lines, x = [], float(WIDTH - RIGHT)
    for words, colour in reversed(entries):
        lines.append(text(x, panel.bottom - HEIGHT - 10, words, colour, anchor="end", weight=600))
        x -= 7.0 * len(words) + 18
    return lines


def draw(run: dict[str, Any]) -> str:
    samples, streams = run["samples"], run["streams"]
    seconds = max(sample["at"] for sample in samples)
    waits = [(s["at"], s["first_s"]) for s in streams if s["first_s"] is not None]
    replicas = Panel(
        0,
        "Replicas and clients",
        1 + max(max(s["clients"], s["replicas"]) for s in samples),
        seconds,
    )
    pressure = Panel(
        1, "Pressure", max(1.0, *(sample["pressure"] or 0 for sample in samples)), seconds
    )
    first = Panel(2, "Time to first event of each stream", max(wait for _, wait in waits), seconds)
    dash = 'stroke-dasharray="5 4"'

    def over_time(name: str) -> list[Point]:
        return [(sample["at"], sample[name]) for sample in samples if sample[name] is not None]

    target_y = pressure.y(run["target"])
    parts = [
        *replicas.frame(),
        replicas.steps(over_time("clients"), FAINT, dash),
        replicas.steps(over_time("desired"), ORANGE),
        replicas.steps(over_time("ready"), BLUE),
        *legend(replicas, [("clients", FAINT), ("wanted", ORANGE), ("ready", BLUE)]),
        *pressure.frame(),
        line(LEFT, target_y, WIDTH - RIGHT, target_y, RED, dash),
        pressure.steps(over_time("pressure"), GREEN),
        *legend(pressure, [("target", RED), ("pressure", GREEN)]),
        *first.frame(unit=" s"),
        *first.dots(waits, BLUE),
    ]
    height = first.bottom + 30
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}"'
            ' font-family="system-ui, sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, metavar="RUN.json")
    parser.add_argument("picture", type=Path, metavar="PICTURE.svg")
    options = parser.parse_args()
    source, picture = options.source, options.picture
    if not source.is_file():
        parser.error(f"there is no file {source}")
    picture.write_text(draw(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
