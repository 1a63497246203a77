"""The contents of the KV pools, one plot per run."""

from pando_sim.report.digest import Digest
from pando_sim.report.measures import percent
from pando_sim.report.plots import axes as axis
from pando_sim.report.plots.canvas import COLOUR, Canvas, Plot, mark_events


def kv_tokens(name: str, number: int, one: Digest, last_s: float) -> Plot:
    pool = one.series.pool
    canvas = Canvas(f"kv-{number}", height=2.1)
    parts = {
        "pinned": pool.pinned_tokens,
        "cached": pool.cached_tokens,
        "free": pool.free_tokens,
    }
    canvas.axes.stackplot(
        pool.at_s,
        *parts.values(),
        colors=[COLOUR[part] for part in parts],
        linewidth=0,
    )
    capacity = [sum(values) for values in zip(*parts.values(), strict=True)]
    axis.time_along(canvas.axes, last_s)
    axis.from_zero(canvas.axes, max(capacity, default=0.0))
    canvas.axes.yaxis.set_major_formatter(axis.sizes)
    canvas.axes.grid(False)
    mark_events(canvas.axes, one.events)
    total = sum(capacity) or 1.0
    shares = ", ".join(f"{part} {percent(sum(values) / total)}" for part, values in parts.items())
    return canvas.plot(name, f"On average: {shares}.", f"KV tokens of all ready replicas: {shares}")
