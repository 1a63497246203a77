"""Fills the template: the page's contents, their order, and texts with numbers."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from pando_sim.records import ScalingStep
from pando_sim.report.about import About
from pando_sim.report.digest import Digest, names, shared_events
from pando_sim.report.measures import (
    GPU_HOURS,
    IN_BARS,
    IN_TABLE,
    Measure,
    limit,
    seconds,
    shown,
    span,
    whole,
)
from pando_sim.report.page.verdict import verdict
from pando_sim.report.plots import bars, distributions, memory, over_time, scaling
from pando_sim.report.plots.canvas import DASHES, RUN_COLOURS, Plot, titled

SCRIPT = Path(__file__).with_name("script.js")
MOST_STEPS = 60  # per run, in the table; results.json has all
MOST_EVENTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    identity: str
    title: str
    words: str
    plots: tuple[Plot, ...]
    has_lines: bool = True  # the legend can show and hide them


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    words: str
    value: float | None
    is_best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The scaling decisions of one run."""

    run: str
    rows: tuple[ScalingStep, ...]
    left_out: int


def write_page(path: Path, about: About, digests: Sequence[Digest]) -> None:
    """`digests`: at least one, all of the same trace."""
    path.write_text(render(about, list(digests)), encoding="utf-8")


def render(about: About, digests: list[Digest]) -> str:
    environment = Environment(
        loader=PackageLoader("pando_sim.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "limit": limit,
        "seconds": seconds,
        "span": span,
        "whole": whole,
        "tied": _tied,
    }
    runs, measures, events = names(digests), _measures(digests), shared_events(digests)
    environment.filters["named"] = lambda svg: titled(svg, runs)
    script = SCRIPT.read_text(encoding="utf-8")
    return environment.get_template("report.html.j2").render(
        about=about,
        verdict=verdict(about, digests),
        runs=runs,
        colours=[number % RUN_COLOURS for number in range(len(runs))],
        dashes=[number // RUN_COLOURS % len(DASHES) for number in range(len(runs))],
        script=script,
        script_hash=script_hash(script),
        statistics=[one.statistics for one in digests],
        measures=measures,
        rows=list(zip(runs, _cells(measures, digests), strict=True)),
        sections=_sections(about, digests),
        steps=_steps(digests),
        events=events[:MOST_EVENTS],
        events_left_out=max(0, len(events) - MOST_EVENTS),
        checks=_checks(digests),
        settings=_settings(digests),
    )


def _sections(about: About, digests: list[Digest]) -> list[Section]:
    found = [_in_time(about, digests), _over_time(digests), _memory(digests)]
    if len(digests) > 1:
        found.insert(0, _side_by_side(digests))
    if any(one.steps for one in digests):
        found.append(_scaling(digests))
    return found


def _side_by_side(digests: list[Digest]) -> Section:
    statistics = [one.statistics for one in digests]
    sizes_vary = len({one.scaling for one in digests}) > 1
    differ = [m for m in IN_BARS if m.best(statistics) and (sizes_vary or m is not GPU_HOURS)]
    return Section(
        identity="side-by-side",
        title="Side by side",
        words="The same requests, replicas and cost model; ★ marks the best.",
        plots=tuple(bars.compared(measure, digests) for measure in differ),
        has_lines=False,
    )


def _in_time(about: About, digests: list[Digest]) -> Section:
    return Section(
        identity="in-time",
        title="Requests in time",
        words="The share of all requests that were answered within a time.",
        plots=(distributions.ttft(about, digests), distributions.gap(about, digests)),
    )


def _over_time(digests: list[Digest]) -> Section:
    return Section(
        identity="over-time",
        title="Over time",
        words="Requests are counted at their arrival. Times are simulated.",
        plots=(
            over_time.hit_rate(digests),
            over_time.ttft(digests, 50),
            over_time.ttft(digests, 99),
            over_time.queue(digests),
            over_time.gap(digests, 50),
            over_time.gap(digests, 99),
            over_time.load_spread(digests),
            over_time.replicas(digests),
            over_time.gpu_hours(digests),
        ),
    )


def _memory(digests: list[Digest]) -> Section:
    last = max(one.statistics.duration_s for one in digests)
    return Section(
        identity="memory",
        title="KV memory",
        words="Tokens of all ready replicas: pinned by running requests, cached for later ones"
        " (evicted when room is needed), or free.",
        plots=tuple(
            memory.kv_tokens(name, number, one, last)
            for number, (name, one) in enumerate(zip(names(digests), digests, strict=True))
        ),
        has_lines=False,
    )


def _scaling(digests: list[Digest]) -> Section:
    plots = [scaling.recomputed(digests), scaling.delayed(digests)]
    if any(step.prefilled_tokens for one in digests for step in one.steps):
        plots.append(scaling.prefilled(digests))
    if len(digests) > 1:
        plots.insert(0, scaling.price(digests))
    return Section(
        identity="scaling",
        title="What scaling cost",
        words="A replica that leaves takes its cache along; a new one takes time to start.",
        plots=tuple(plots),
    )


def _tied(text: str) -> str:
    """Keeps numbers on one line with their units."""
    return re.sub(r"(?<=\d) (?=(%|ms|s|min|h)(?!\w))", "\N{NO-BREAK SPACE}", text)


def _measures(digests: Sequence[Digest]) -> list[Measure]:
    """The measures for which there is a number."""
    return shown(IN_TABLE, [one.statistics for one in digests])


def _cells(measures: Sequence[Measure], digests: Sequence[Digest]) -> list[list[Cell]]:
    statistics = [one.statistics for one in digests]
    best = {measure.title: measure.best(statistics) for measure in measures}

    def cell(measure: Measure, number: int) -> Cell:
        value = measure.value(statistics[number])
        words = "–" if value is None else measure.words(value)  # noqa: RUF001 - typography
        return Cell(words=words, value=value, is_best=number in best[measure.title])

    return [[cell(measure, n) for measure in measures] for n in range(len(digests))]


def _steps(digests: Sequence[Digest]) -> list[Steps]:
    return [
        Steps(
            run=name,
            rows=tuple(one.steps[:MOST_STEPS]),
            left_out=max(0, len(one.steps) - MOST_STEPS),
        )
        for name, one in zip(names(list(digests)), digests, strict=True)
        if one.steps
    ]


def _checks(digests: Sequence[Digest]) -> list[tuple[str, int]]:
    """Each invariant, and how often it was checked in all runs together."""
    total: dict[str, int] = {}
    for one in digests:
        for name, count in one.checks.items():
            total[name] = total.get(name, 0) + count
    return list(total.items())


def _settings(digests: Sequence[Digest]) -> list[tuple[str, str]]:
    """The simulated settings that are the same in all runs."""
    flat = [_flat(one.settings) for one in digests]
    return [
        (name, value)
        for name, value in flat[0].items()
        if all(other.get(name) == value for other in flat)
    ]


def _flat(settings: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + str(name)] = str(value)
    return found


def script_hash(script: str) -> str:
    """For the content security policy, which lets nothing else run."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"
