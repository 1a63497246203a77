"""Axes of the report: times, percentages, sizes."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from pando_sim.report.measures import span

_UNITS = (
    (2 * 86_400.0, 86_400.0, "d"),
    (2 * 3600.0, 3600.0, "h"),
    (240.0, 60.0, "min"),
    (0, 1, "s"),
)
_STEPS = (1, 2, 3, 5, 6, 10)
_LOG_STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), [n / 10 for n in range(10, 100)])


def time_along(axes: Axes, last_s: float) -> None:
    """Virtual time from 0 to the end of the longest run."""
    unit_s, unit = next((unit_s, unit) for least, unit_s, unit in _UNITS if last_s >= least)
    step = _nice(last_s / unit_s / 6) * unit_s
    count = int(last_s / step) + 1 if step else 1
    axes.set_xlim(0, last_s or 1)
    axes.xaxis.set_major_locator(FixedLocator([number * step for number in range(count)]))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda at, _: f"{at / unit_s:g} {unit}" if at else "0")
    )


def from_zero(axes: Axes, most: float, *, counts: bool = False) -> None:
    """`counts`: the values are whole numbers."""
    axes.set_ylim(0, most * 1.06 if most > 0 else 1)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=counts))


def log_seconds(axes: Axes, values: Sequence[float], *, along: bool = False) -> None:
    """A logarithmic axis of times, from the least to the greatest value."""
    positive = [value for value in values if value > 0]
    low, high = (min(positive), max(positive)) if positive else (0.01, 1.0)
    low, high = low / 1.15, max(high * 1.15, low * 2)
    axis = axes.xaxis if along else axes.yaxis
    (axes.set_xscale if along else axes.set_yscale)("log")
    (axes.set_xlim if along else axes.set_ylim)(low, high)
    axis.set_major_locator(FixedLocator(_log_ticks(low, high)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="both", which="minor", length=0)


def percentages(axes: Axes, most: float = 1.0) -> None:
    axes.set_ylim(0, most)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def sizes(value: float, _: float | None = None) -> str:
    """Tokens: "850", "12k", "3.5M"."""
    for least, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= least:
            return f"{value / least:g}{unit}"
    return f"{value:g}"


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between both, at least three if possible, and none too close to another."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    apart = (high / low) ** (1 / 7)
    ticks: list[float] = []
    for steps in _LOG_STEPS:
        ticks = []
        for tick in (step * 10.0**decade for decade in decades for step in steps):
            if low <= tick <= high and (not ticks or tick >= ticks[-1] * apart):
                ticks.append(tick)
        if len(ticks) >= 3:
            break
    return ticks


def _tick(value: float) -> str:
    if value < 1:
        return f"{round(1000 * value, 6):g} ms"
    return f"{value:g} s" if value < 600 else span(value)


def _nice(least: float) -> float:
    """The next of 1, 2, 3, 5, 6 and 10 times a power of ten."""
    if least <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least)
