"""The costs of scaling: each change of the size, and the price of being in time."""

from collections.abc import Sequence

import matplotlib.ticker as ticker

from pando_sim.report.digest import Digest, names
from pando_sim.report.measures import percent, whole
from pando_sim.report.plots import axes as axis
from pando_sim.report.plots.canvas import COLOUR, Canvas, Plot, run_colour


def recomputed(digests: Sequence[Digest]) -> Plot:
    return _cost(
        "recomputed",
        digests,
        "recomputed_tokens",
        "Tokens recomputed after each removal",
        "Prompt tokens that were lost with the removed replicas' caches and needed again; one mark"
        " per scaling decision.",
    )


def delayed(digests: Sequence[Digest]) -> Plot:
    return _cost(
        "delayed",
        digests,
        "delayed_requests",
        "Requests delayed until each change took effect",
        "Late first tokens between a decision and the moment when its replicas were ready; one"
        " mark per scaling decision.",
    )


def prefilled(digests: Sequence[Digest]) -> Plot:
    return _cost(
        "prefilled",
        digests,
        "prefilled_tokens",
        "Tokens computed for caches, not for a request",
        "The hottest prefixes, computed by joining replicas, and those that only a leaving replica"
        " holds, computed by the others; one mark per scaling decision.",
    )


def price(digests: Sequence[Digest]) -> Plot:
    """GPU-hours against requests that were too slow; lower left is better."""
    canvas = Canvas("price")
    said = []
    slow = [1 - (one.statistics.goodput or 0.0) for one in digests]
    hours = [one.statistics.gpu_hours for one in digests]
    for number, name in enumerate(names(list(digests))):
        canvas.axes.scatter(
            hours[number], slow[number], s=46, color=run_colour(number), gid=f"run-{number}"
        )
        canvas.axes.annotate(
            name,
            (hours[number], slow[number]),
            xytext=(6, 4),
            textcoords="offset points",
            color=COLOUR["ink"],
            gid=f"run-{number}",
        )
        said.append(f"{name} {hours[number]:.1f} GPU-hours and {percent(slow[number])}")
    axis.percentages(canvas.axes, max(slow) * 1.15 or 1.0)
    canvas.axes.set_xlim(0, max(hours) * 1.3 or 1)
    canvas.axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g} h"))
    return canvas.plot(
        "The price of being in time",
        "Requests that were refused, failed or late (upwards) and GPU-hours (to the right); nearer"
        " to the lower left is better.",
        "; ".join(said),
    )


def _cost(name: str, digests: Sequence[Digest], which: str, title: str, caption: str) -> Plot:
    canvas = Canvas(name)
    most, last, said = 0.0, 0.0, []
    for number, (run, one) in enumerate(zip(names(list(digests)), digests, strict=True)):
        steps = [(step.at_s, float(getattr(step, which))) for step in one.steps]
        costs = [cost for _, cost in steps]
        canvas.axes.vlines(
            [at for at, _ in steps],
            0,
            costs,
            color=run_colour(number),
            linewidth=1.6,
            gid=f"run-{number}",
        )
        canvas.axes.plot(
            [at for at, _ in steps],
            costs,
            "o",
            markersize=3.5,
            color=run_colour(number),
            gid=f"run-{number}",
        )
        most, last = max([most, *costs]), max(last, one.statistics.duration_s)
        said.append(f"{run} {whole(sum(costs))} in {len(steps)} decisions")
    axis.time_along(canvas.axes, last)
    axis.from_zero(canvas.axes, most)
    canvas.axes.yaxis.set_major_formatter(ticker.FuncFormatter(axis.sizes))
    return canvas.plot(title, caption, f"In all: {'; '.join(said)}.")
