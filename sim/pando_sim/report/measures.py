"""The measures that compare runs: name, formatting, and which value is better."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from pando_sim.report.statistics import SessionStatistics, Spread, Statistics

T = TypeVar("T")


class Better(Enum):
    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    title: str
    meaning: str  # for readers who do not know it
    value: Callable[[Statistics], float | None]
    words: Callable[[float], str]
    better: Better | None = None  # None: neither

    def best(self, runs: Sequence[Statistics]) -> set[int]:
        """The runs that display the best value; none if all display the same."""
        values = [self.value(run) for run in runs]
        known = [value for value in values if value is not None]
        if self.better is None or not known:
            return set()
        best = self.words(max(known) if self.better is Better.HIGHER else min(known))
        if all(value is not None and self.words(value) == best for value in values):
            return set()
        return {i for i, v in enumerate(values) if v is not None and self.words(v) == best}


def seconds(value: float) -> str:
    """Three digits: "0.42 ms", "85.0 ms", "1.24 s", "11 min"."""
    if value == 0:
        return "0 s"
    if value < 1:
        return f"{_digits(1000 * value)} ms"
    return f"{_digits(value)} s" if value < 600 else span(value)


def limit(value: float) -> str:
    """As a person writes it: "50 ms", "2 s"."""
    return f"{1000 * value:g} ms" if value < 1 else f"{value:g} s"


def span(value: float) -> str:
    """A longer time: "45 s", "12 min", "2 h 10 min"."""
    if value < 120:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def ratio(value: float) -> str:
    return f"{value:.2f}"


def whole(value: float) -> str:
    return f"{value:,.0f}"


def hours(value: float) -> str:
    return f"{_digits(value)} h"


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 4)}f}"


def _time(
    title: str, of: Callable[[Statistics], Spread | None], part: str, meaning: str
) -> Measure:
    """A measure: `part` of the `Spread` of a quantity over requests."""

    def value(run: Statistics) -> float | None:
        found = of(run)
        return None if found is None else float(getattr(found, part))

    return Measure(
        title=f"{title} {part}", meaning=meaning, value=value, words=seconds, better=Better.LOWER
    )


def _lost(run: Statistics) -> float:
    return run.refused + run.failed


HIT_RATE = Measure(
    title="hit rate",
    meaning="prompt tokens that came from a cache, of all prompt tokens",
    value=lambda run: run.hit_rate,
    words=percent,
    better=Better.HIGHER,
)
MATCHED = Measure(
    title="promised",
    meaning="the hit rate that placement expected; above the delivered one if replicas had evicted"
    " the prefixes for which they were chosen; – for a rule that expects none",  # noqa: RUF001
    value=lambda run: run.matched_rate or None,
    words=percent,
)
TTFT_P50 = _time(
    "TTFT",
    lambda run: run.ttft,
    "p50",
    "time to first token, from a request's arrival at a router; half are below",
)
TTFT_P90 = _time("TTFT", lambda run: run.ttft, "p90", "time to first token; 90 % are below")
TTFT_P99 = _time("TTFT", lambda run: run.ttft, "p99", "time to first token; 99 % are below")
_GAP = "a request's mean time between two tokens"
GAP_P50 = _time("gap", lambda run: run.gap, "p50", f"{_GAP}; half are below")
GAP_P99 = _time("gap", lambda run: run.gap, "p99", f"{_GAP}; 99 % are below")
LONGEST_P99 = _time(
    "longest gap",
    lambda run: run.longest_gap,
    "p99",
    "a request's longest time between two tokens; 99 % are below",
)
QUEUE_P99 = _time(
    "queue",
    lambda run: run.queue_wait,
    "p99",
    "time in a router until a replica took it; 99 % are below",
)
GOODPUT = Measure(
    title="goodput",
    meaning="share of requests that finished in time",
    value=lambda run: run.goodput,
    words=percent,
    better=Better.HIGHER,
)
OUTPUT_RATE = Measure(
    title="tokens/s",
    meaning="output tokens per second of the whole pool",
    value=lambda run: run.output_tokens_per_s,
    words=whole,
    better=Better.HIGHER,
)
LOAD_SPREAD = Measure(
    title="load spread",
    meaning="prompt tokens computed by the busiest replica, divided by an even share; 1 is even",
    value=lambda run: run.load_spread,
    words=ratio,
    better=Better.LOWER,
)
GPU_HOURS = Measure(
    title="GPU-hours",
    meaning="time that replicas existed, including starting and draining, times their GPUs",
    value=lambda run: run.gpu_hours,
    words=_digits,
    better=Better.LOWER,
)
LOST = Measure(
    title="lost",
    meaning="requests refused for lack of room, or failed with their replica",
    value=_lost,
    words=whole,
    better=Better.LOWER,
)

ADAPTER_LOADS = Measure(
    title="adapter loads",
    meaning="loads of LoRA adapters into slots of replicas",
    value=lambda run: run.adapter_loads or None,
    words=whole,
    better=Better.LOWER,
)


def _of_sessions(
    value: Callable[[SessionStatistics], T | None],
) -> Callable[[Statistics], T | None]:
    """A run without sessions has no such number."""
    return lambda run: None if run.sessions is None else value(run.sessions)


CALLS = Measure(
    title="calls/h",
    meaning="calls of sessions that were answered in an hour",
    value=_of_sessions(lambda run: run.calls_per_hour),
    words=whole,
    better=Better.HIGHER,
)
SESSIONS = Measure(
    title="sessions/h",
    meaning="sessions that ended in an hour",
    value=_of_sessions(lambda run: run.sessions_per_hour),
    words=_digits,
    better=Better.HIGHER,
)
FIRST_P99 = _time(
    "first TTFT",
    _of_sessions(lambda run: run.first_ttft),
    "p99",
    "time to first token of first calls of sessions and sub-agents; 99 % are below",
)
_later_ttft = _of_sessions(lambda run: run.later_ttft)
_LATER = "time to first token of all later calls of sessions"
LATER_P50 = _time("later TTFT", _later_ttft, "p50", f"{_LATER}; half are below")
LATER_P99 = _time("later TTFT", _later_ttft, "p99", f"{_LATER}; 99 % are below")
CEILING = Measure(
    title="hit ceiling",
    meaning="prompt tokens with which an earlier prompt began: the hit rate of caches that evict"
    " nothing",
    value=_of_sessions(lambda run: run.repeated_share),
    words=percent,
)
RECOMPUTED = Measure(
    title="computed twice",
    meaning="of the computed prompt tokens, those that had been computed before",
    value=_of_sessions(lambda run: run.recomputed_share),
    words=percent,
    better=Better.LOWER,
)
_OF_SESSIONS = (CALLS, SESSIONS, FIRST_P99, LATER_P50, LATER_P99, RECOMPUTED)

IN_TABLE = (
    *_OF_SESSIONS,
    CEILING,
    GOODPUT,
    TTFT_P50,
    TTFT_P90,
    TTFT_P99,
    GAP_P50,
    GAP_P99,
    HIT_RATE,
    LOAD_SPREAD,
    GPU_HOURS,
    LOST,
    ADAPTER_LOADS,
    MATCHED,
    QUEUE_P99,
    LONGEST_P99,
    OUTPUT_RATE,
)
IN_BARS = (
    *_OF_SESSIONS,
    GOODPUT,
    HIT_RATE,
    TTFT_P50,
    TTFT_P99,
    GAP_P99,
    LOAD_SPREAD,
    GPU_HOURS,
    LOST,
)
IN_TERMINAL = (
    GOODPUT,
    TTFT_P50,
    TTFT_P99,
    GAP_P99,
    HIT_RATE,
    LOAD_SPREAD,
    GPU_HOURS,
    LOST,
    ADAPTER_LOADS,
)
IN_TERMINAL_OF_SESSIONS = (*_OF_SESSIONS, HIT_RATE, LOST)


def shown(choice: Sequence[Measure], runs: Sequence[Statistics]) -> list[Measure]:
    """Those of `choice` that some run has a number for."""
    return [m for m in choice if any(m.value(run) is not None for run in runs)]
