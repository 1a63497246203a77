"""The plots of a search; each point has the name that browsers show under the pointer."""

import math
from collections.abc import Sequence

from matplotlib.ticker import FuncFormatter, MaxNLocator

from pando_sim.report.measures import percent
from pando_sim.report.plots.canvas import COLOUR, Canvas, Plot, run_colour, titled
from pando_sim.tuning.findings import DEFAULTS, TODAY, Findings, Shown
from pando_sim.tuning.knobs import SCALING
from pando_sim.tuning.score import Score
from pando_sim.tuning.words import called

_LEAST = 1e-4  # fewer misses are drawn as these
_SPECIAL = {TODAY: (1, "s", "today"), DEFAULTS: (2, "D", "defaults")}
_HEIGHT = 3.2


def searched(findings: Findings) -> Plot:
    points = [one for one in findings.points if one.searched.is_whole]
    return _front(
        findings,
        "searched",
        points,
        [one.searched for one in points],
        "On the part that was searched",
        "GPU-hours a week along, requests that missed upwards. Each point is a candidate; the line"
        " joins those that no other one beats. Runs that were lost early are not shown."
        + (
            " Faint ones were tried on a short excerpt only, which makes them a rough guess."
            if any(one.is_only_tried for one in points)
            else ""
        ),
    )


def judged(findings: Findings) -> Plot:
    points = [one for one in findings.points if one.judged is not None]
    return _front(
        findings,
        "judged",
        points,
        [one.judged for one in points if one.judged is not None],
        "On the part that judges",
        "The same candidates on requests with which nothing was searched: the numbers to believe.",
    )


def _front(
    findings: Findings,
    name: str,
    points: Sequence[Shown],
    outcomes: Sequence[Score],
    title: str,
    caption: str,
) -> Plot:
    canvas = Canvas(name, height=_HEIGHT)
    axes, names = canvas.axes, list[str]()
    labels: dict[tuple[float, float], list[str]] = {}  # by place: points may be equal
    line = sorted(
        (one.gpu_hours_a_week, max(one.missed, _LEAST))
        for point, one in zip(points, outcomes, strict=True)
        if point.is_on_front
    )
    axes.plot([x for x, _ in line], [y for _, y in line], color=COLOUR["faint"], linewidth=1)
    for number, (point, one) in enumerate(zip(points, outcomes, strict=True)):
        colour, mark, label = _SPECIAL.get(point.name, (0, "o", ""))
        if point.name == findings.recommended:
            colour, mark, label = 3, "*", "recommended"
        at = one.gpu_hours_a_week, max(one.missed, _LEAST)
        strong = bool(label) or point.is_on_front
        axes.plot(
            *([value] for value in at),
            marker=mark,
            markersize=12 if mark == "*" else 6 if strong else 4,
            color=run_colour(colour) if strong else COLOUR["faint"],
            linestyle="",
            gid=f"run-{number}",
        )
        if label:
            labels.setdefault(at, []).append(label)
        names.append(
            f"{called(point)}: {at[0]:,.0f} GPU-hours a week, {percent(one.missed)} missed"
        )
    for at, words in labels.items():
        axes.annotate(
            ", ".join(words),
            at,
            xytext=(6, 5),
            textcoords="offset points",
            fontsize=8,
            color=COLOUR["ink"],
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    _around(canvas, outcomes)
    plot = canvas.plot(
        title, caption, "GPU-hours a week along, requests that missed upwards. " + "; ".join(names)
    )
    return Plot(title=plot.title, caption=plot.caption, svg=titled(plot.svg, names))


def _around(canvas: Canvas, outcomes: Sequence[Score]) -> None:
    """Leaves room for the labels at the right."""
    hours = [one.gpu_hours_a_week for one in outcomes]
    if not hours:
        return
    room = (max(hours) - min(hours)) or max(hours) or 1.0
    canvas.axes.set_xlim(min(hours) - 0.05 * room, max(hours) + 0.3 * room)
    misses = [max(one.missed, _LEAST) for one in outcomes]
    low, high = 10 ** math.floor(math.log10(min(misses))), 1.5 * max(misses)
    canvas.axes.set_ylim(low * 0.9, max(high, 10 * low))


def importance(findings: Findings) -> Plot:
    """A bar for each field and goal."""
    hours, missed = findings.importances
    paths = sorted(hours, key=lambda path: max(hours[path], missed[path]))
    canvas = Canvas("importance", height=0.9 + 0.26 * len(paths), left=2.7)
    names = []
    for number, (shares, offset, goal) in enumerate(
        ((hours, 0.2, "GPU-hours"), (missed, -0.2, "misses"))
    ):
        canvas.axes.barh(
            [place + offset for place in range(len(paths))],
            [shares[path] for path in paths],
            height=0.36,
            color=run_colour(number),
            label=goal,
        )
        names.append(", ".join(f"{path} {shares[path]:.0%}" for path in reversed(paths)))
    canvas.axes.set_yticks(
        range(len(paths)), [path.removeprefix(SCALING).removeprefix("behavior.") for path in paths]
    )
    canvas.axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    canvas.axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 0.98),
        ncols=2,
        frameon=False,
        fontsize=8,
        labelcolor=COLOUR["ink"],
    )
    return canvas.plot(
        "What mattered",
        "The share of each field in what made candidates good (PED-ANOVA over all of them; with few"
        " candidates a rough measure).",
        f"For GPU-hours: {names[0]}. For misses: {names[1]}.",
    )
