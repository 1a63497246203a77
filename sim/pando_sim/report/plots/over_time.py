"""Changes over time: a line per run."""

from collections.abc import Callable, Sequence

import numpy as np

from pando_sim.report.digest import Digest, names, shared_events
from pando_sim.report.measures import percent, ratio, seconds, whole
from pando_sim.report.plots import axes as axis
from pando_sim.report.plots.canvas import Canvas, Plot, mark_events, run_colour, run_dashes
from pando_sim.report.series import Line, RequestSeries
from pando_sim.report.statistics import Spread

Points = tuple[Sequence[float], Line | list[float]]


def hit_rate(digests: Sequence[Digest]) -> Plot:
    canvas, most = _lines("hit-rate", digests, lambda one: _arrivals(one, "hit_rate"))
    axis.percentages(canvas.axes, min(1.0, most * 1.1) or 1.0)
    return canvas.plot(
        "Hit rate over time",
        "Prompt tokens that came from a cache, of all prompt tokens of the requests that arrived"
        " then. At first all caches are empty.",
        _ends(digests, lambda one: one.statistics.hit_rate, percent, "Over the whole run"),
    )


def ttft(digests: Sequence[Digest], share: int) -> Plot:
    return _latency(
        digests,
        f"ttft_p{share}",
        f"Time to first token over time, p{share}",
        f"{share} % of the requests that arrived then are below. Logarithmic.",
        lambda one: _share(one.statistics.ttft, share),
    )


def gap(digests: Sequence[Digest], share: int) -> Plot:
    return _latency(
        digests,
        f"gap_p{share}",
        f"Time between tokens over time, p{share}",
        f"The mean gap of each request that arrived then; {share} % are below. Logarithmic.",
        lambda one: _share(one.statistics.gap, share),
    )


def queue(digests: Sequence[Digest]) -> Plot:
    canvas, most = _lines(
        "queue", digests, lambda one: (one.series.pool.at_s, one.series.pool.queued)
    )
    axis.from_zero(canvas.axes, most, counts=True)
    return canvas.plot(
        "Waiting requests",
        "In routers for a replica, and in replicas for a first token; the longest in each"
        " interval.",
        _ends(digests, lambda one: max(one.series.pool.queued, default=None), whole, "Most"),
    )


def load_spread(digests: Sequence[Digest]) -> Plot:
    canvas, most = _lines(
        "load-spread", digests, lambda one: (one.series.load.at_s, one.series.load.spread)
    )
    axis.from_zero(canvas.axes, most)
    canvas.axes.set_ylim(bottom=1 if most > 1 else 0)
    return canvas.plot(
        "Load spread over time",
        "Prompt tokens that the busiest replica had to compute, divided by an even share;"
        " 1 is even.",
        _ends(digests, lambda one: one.statistics.load_spread, ratio, "Over the whole run"),
    )


def replicas(digests: Sequence[Digest]) -> Plot:
    canvas, most = _lines(
        "replicas", digests, lambda one: (one.series.pool.at_s, one.series.pool.replicas)
    )
    axis.from_zero(canvas.axes, most, counts=True)
    return canvas.plot(
        "Replicas over time",
        "Replicas that cost money: starting, ready and draining.",
        _ends(digests, lambda one: one.statistics.mean_replicas, ratio, "On average"),
    )


def gpu_hours(digests: Sequence[Digest]) -> Plot:
    canvas, most = _lines(
        "gpu-hours", digests, lambda one: (one.series.pool.at_s, one.series.pool.gpu_hours)
    )
    axis.from_zero(canvas.axes, most)
    return canvas.plot(
        "GPU-hours spent",
        "Since the start. A run ends when its last request has ended.",
        _ends(digests, lambda one: one.statistics.gpu_hours, ratio, "In the end"),
    )


def _latency(
    digests: Sequence[Digest],
    which: str,
    title: str,
    caption: str,
    overall: Callable[[Digest], float | None],
) -> Plot:
    canvas, _ = _lines(which.replace("_", "-"), digests, lambda one: _arrivals(one, which))
    values = [v for one in digests for v in _arrivals(one, which)[1] if v is not None]
    axis.log_seconds(canvas.axes, values)
    return canvas.plot(title, caption, _ends(digests, overall, seconds, "Over the whole run"))


def _share(spread: Spread | None, share: int) -> float | None:
    return None if spread is None else float(getattr(spread, f"p{share}"))


def _arrivals(one: Digest, which: str) -> Points:
    series: RequestSeries = one.series.requests
    return series.at_s, getattr(series, which)


def _lines(
    name: str, digests: Sequence[Digest], points: Callable[[Digest], Points]
) -> tuple[Canvas, float]:
    """Draws the lines, and returns the highest value."""
    canvas, most, last = Canvas(name), 0.0, 0.0
    for number, one in enumerate(digests):
        at_s, values = points(one)
        numbers = np.array([np.nan if value is None else value for value in values], np.float64)
        canvas.axes.plot(
            at_s,
            numbers,
            color=run_colour(number),
            linestyle=run_dashes(number),
            gid=f"run-{number}",
            marker="o" if len(numbers) == 1 else None,
            zorder=len(digests) - number + 2,
        )
        most = max(most, float(np.nanmax(numbers, initial=0.0)))
        last = max(last, one.statistics.duration_s, *at_s)
    axis.time_along(canvas.axes, last)
    mark_events(canvas.axes, shared_events(digests))
    return canvas, most


def _ends(
    digests: Sequence[Digest],
    value: Callable[[Digest], float | None],
    words: Callable[[float], str],
    when: str,
) -> str:
    """A sentence for readers who cannot see the lines."""
    parts = []
    for name, one in zip(names(list(digests)), digests, strict=True):
        number = value(one)
        parts.append(f"{name} {'none' if number is None else words(number)}")
    return f"{when}: {', '.join(parts)}."
