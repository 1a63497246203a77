"""The runs side by side, by one measure."""

from collections.abc import Sequence

from matplotlib.ticker import NullLocator

from pando_sim.report.digest import Digest, names
from pando_sim.report.measures import Measure
from pando_sim.report.plots.canvas import COLOUR, Canvas, Plot, run_colour


def compared(measure: Measure, digests: Sequence[Digest]) -> Plot:
    """Horizontal bars from 0, each with its name and value."""
    runs = [one.statistics for one in digests]
    best = measure.best(runs)
    called = names(list(digests))
    canvas = Canvas(
        f"bars-{measure.title.replace(' ', '-').replace('/', '-')}",
        height=0.5 + 0.27 * len(digests),
        left=min(2.2, 0.15 + 0.075 * max(map(len, called))),
    )
    values = [measure.value(run) for run in runs]
    most = max((value for value in values if value is not None), default=0.0) or 1.0
    said = []
    for number, (name, value) in enumerate(zip(called, values, strict=True)):
        words = "–" if value is None else measure.words(value)  # noqa: RUF001 - typography
        said.append(f"{name} {words}{' (best)' if number in best else ''}")
        canvas.axes.barh(
            -number, value or 0.0, height=0.66, color=run_colour(number), gid=f"run-{number}"
        )
        canvas.axes.text(
            (value or 0.0) + 0.015 * most,
            -number,
            f"{words} ★" if number in best else words,
            va="center",
            color=COLOUR["ink"],
            fontweight="bold" if number in best else "normal",
        )
    canvas.axes.set_xlim(0, most * 1.3)
    canvas.axes.set_ylim(-len(digests) + 0.45, 0.55)
    canvas.axes.set_yticks([-n for n in range(len(digests))], called)
    canvas.axes.tick_params(axis="y", labelcolor=COLOUR["ink"])
    canvas.axes.xaxis.set_major_locator(NullLocator())
    canvas.axes.spines["bottom"].set_visible(False)
    canvas.axes.grid(False)
    return canvas.plot(_capital(measure.title), f"{_capital(measure.meaning)}.", "; ".join(said))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
