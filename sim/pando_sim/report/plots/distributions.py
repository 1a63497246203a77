"""Distributions of requests' times."""

from collections.abc import Sequence

from pando_sim.report.about import About
from pando_sim.report.digest import Digest, names
from pando_sim.report.measures import limit
from pando_sim.report.plots import axes as axis
from pando_sim.report.plots.canvas import COLOUR, Canvas, Plot, run_colour, run_dashes

_LEAST_S = 1e-4  # shorter times are drawn as this one


def ttft(about: About, digests: Sequence[Digest]) -> Plot:
    curves = [(one.series.distribution.ttft_s, one.series.distribution.share) for one in digests]
    return _shares(
        "ttft-cdf",
        digests,
        curves,
        about.slow_ttft_s,
        "Time to first token of all requests",
        "Requests with a first token within a time; higher is better. A curve that ends"
        f" below 100 % lost requests. The mark is at {limit(about.slow_ttft_s)}, the limit of being"
        " in time.",
    )


def gap(about: About, digests: Sequence[Digest]) -> Plot:
    curves = [(one.series.distribution.gap_s, one.series.distribution.gap_share) for one in digests]
    return _shares(
        "gap-cdf",
        digests,
        curves,
        about.slow_gap_s,
        "Time between tokens of all requests",
        "The share of requests with a mean time between tokens within this; higher is better. The"
        f" mark is at {limit(about.slow_gap_s)}, the limit of being in time.",
    )


def _shares(
    name: str,
    digests: Sequence[Digest],
    curves: Sequence[tuple[list[float], list[float]]],
    limit_s: float,
    title: str,
    caption: str,
) -> Plot:
    canvas = Canvas(name)
    for number, (times, shares) in enumerate(curves):
        canvas.axes.plot(
            [max(time, _LEAST_S) for time in times],
            shares,
            color=run_colour(number),
            linestyle=run_dashes(number),
            gid=f"run-{number}",
            zorder=len(digests) - number + 2,
        )
    axis.log_seconds(
        canvas.axes,
        [max(time, _LEAST_S) for times, _ in curves for time in times[1:]] + [limit_s],
        along=True,
    )
    axis.percentages(canvas.axes, 1.02)
    canvas.axes.axvline(limit_s, color=COLOUR["faint"], linewidth=1, linestyle=(0, (2, 2)))
    within = [
        f"{run} {_within(curve, limit_s):.1%}"
        for run, curve in zip(names(list(digests)), curves, strict=True)
    ]
    return canvas.plot(title, caption, f"Within {limit(limit_s)}: {', '.join(within)}.")


def _within(curve: tuple[list[float], list[float]], limit_s: float) -> float:
    times, shares = curve
    return max((s for t, s in zip(times, shares, strict=True) if t <= limit_s), default=0.0)
