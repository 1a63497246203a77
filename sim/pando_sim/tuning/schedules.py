"""Schedules by hour: a higher `minReplicas` in those hours of the day that are busy every day.

Three numbers say them: the replicas, which hours count as busy, and how long before them the
replicas are started. Which hours these are comes from the part of the trace that is searched, so a
schedule is the same function of the load in each stretch of an excerpt.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from pando_sim.request import Request
from pando_sim.tuning.knobs import Knob, Value

SCHEDULES = "scaling.schedules"
REPLICAS, BUSY, EARLY = (
    f"{SCHEDULES}.{name}" for name in ("minReplicas", "busyShare", "earlyMinutes")
)
BUSY_SHARE = 0.6
MIN_REPLICAS = "scaling.minReplicas"

QUARTER_S, QUARTERS = 900, 96  # of a day
PEAK_S = 300  # a burst of a few minutes counts, wherever in its quarter it is
DAY_MIN = 1440
LEAST_GAP_MIN = 30  # a pool waits minutes before it shrinks, and starts take some
MOST_ENTRIES = 4
LEAST_DAYS = 1.9  # two that may end quietly: fewer cannot show that hours repeat

Span = tuple[int, int]
"""From a minute of the day on, for so many minutes."""


def schedule_knobs(least_replicas: int, most_replicas: int, start_s: float) -> tuple[Knob, ...]:
    """
    Args:
        least_replicas: of today's manifest, at any time.
        start_s: of a replica; earlier than twice that is never needed, and costs much that an
            excerpt, which plays few of these minutes, does not show.
    """
    start_min = math.ceil(start_s / 60)
    low = max(1, least_replicas) + 1
    if low > most_replicas:
        return ()
    return (
        Knob(
            path=REPLICAS,
            words="the fewest replicas in the busy hours",
            low=low,
            high=most_replicas,
            is_whole=True,
            may_be_off=True,
            in_list=SCHEDULES,
            tries=tuple({max(low, round(most_replicas * share)): None for share in (0.4, 0.7)}),
        ),
        Knob(
            path=BUSY,
            words="the load from which on an hour is busy, as a share of the busiest one's",
            low=0.2,
            high=0.95,
            needs=(REPLICAS,),
            in_list=SCHEDULES,
            default=BUSY_SHARE,
        ),
        Knob(
            path=EARLY,
            words="how long before the busy hours",
            low=0,
            high=2 * start_min + 2,
            is_whole=True,
            needs=(REPLICAS,),
            in_list=SCHEDULES,
            default=start_min + 1.0,
        ),
    )


def why_none(seconds: float, *, has_hours: bool, has_own: bool, is_asked: bool) -> str:
    """Why schedules are not searched, as the end of a sentence; empty if they are.

    Args:
        seconds: that the trace lasts.
        has_hours: the trace says at what time of which day requests came.
        has_own: the manifest has schedules.
        is_asked: whether they were asked for by name.
    """
    if has_own:
        return "the manifest has schedules of its own, which stay as they are"
    if not has_hours:
        return "the trace, as it is played, does not say at which time of the day requests came"
    if seconds < LEAST_DAYS * 86_400 and not is_asked:
        return (
            f"the trace lasts {seconds / 3600:.0f} h, and only two days can show that hours repeat"
        )
    return ""


@dataclass(frozen=True, slots=True)
class DayLoad:
    """How busy each quarter of an hour of the day is, as a share of the busiest one."""

    shares: tuple[float, ...]  # from midnight on

    @classmethod
    def of(cls, requests: Sequence[Request], began_s: float, zone: ZoneInfo) -> "DayLoad":
        """Of a quarter its busiest five minutes count, and of the days the lower median: what at
        least half of the days have at this time, so that a burst of one day is none of the hour.

        Args:
            requests: at least one, with times since `began_s`, which is Unix time.
        """
        times = np.array([one.at_s for one in requests]) + began_s
        first, last = (int(at_s // QUARTER_S) for at_s in (times[0], times[-1]))
        in_quarter = QUARTER_S // PEAK_S
        places = (times // PEAK_S).astype(np.int64) - first * in_quarter
        counts = np.bincount(places, minlength=(last - first + 1) * in_quarter)
        peaks = counts.reshape(-1, in_quarter).max(axis=1)
        by_quarter: list[list[int]] = [[] for _ in range(QUARTERS)]
        for quarter, peak in enumerate(peaks.tolist(), first):
            at = datetime.fromtimestamp(quarter * QUARTER_S, zone)
            by_quarter[4 * at.hour + at.minute // 15].append(peak)
        loads = [sorted(days)[(len(days) - 1) // 2] if days else 0 for days in by_quarter]
        most = max(1, *loads)
        return cls(tuple(load / most for load in loads))

    def busy(self, share: float, early_min: int) -> list[Span]:
        """The times of the day with at least that share of the load, each from so many minutes
        before on. Short gaps between them are filled, and the shortest if there are too many."""
        is_busy = [load >= share for load in self.shares]
        if all(is_busy):
            return [(0, DAY_MIN)]
        found: list[Span] = []
        for quarter in range(QUARTERS):
            if is_busy[quarter] and not is_busy[quarter - 1]:
                length = next(n for n in range(QUARTERS) if not is_busy[quarter + n - QUARTERS])
                found.append((15 * quarter - early_min, 15 * length + early_min))
        return _joined(found)


def _joined(spans: list[Span]) -> list[Span]:
    """`spans`: in order; the first may begin on the day before."""
    while len(spans) > 1:
        following = [*spans[1:], (spans[0][0] + DAY_MIN, spans[0][1])]
        gaps = [after[0] - sum(span) for span, after in zip(spans, following, strict=True)]
        place = gaps.index(min(gaps))
        if gaps[place] >= LEAST_GAP_MIN and len(spans) <= MOST_ENTRIES:
            return spans
        begin = spans[place][0]
        spans[place] = (begin, sum(following[place]) - begin)
        del spans[(place + 1) % len(spans)]
    return [(0, DAY_MIN)] if spans[0][1] > DAY_MIN - LEAST_GAP_MIN else spans


@dataclass(frozen=True, slots=True)
class Schedules:
    """The `ListField` of schedules."""

    load: DayLoad
    zone: str

    path = SCHEDULES

    def made(self, values: Mapping[str, Value]) -> list[dict[str, Any]] | None:
        if not (replicas := _number(values, REPLICAS, 0.0)):
            return None
        share = _number(values, BUSY, BUSY_SHARE)
        spans = self.load.busy(share, int(_number(values, EARLY, 0.0)))
        return [
            {
                "cron": f"{begin % 60} {begin // 60 % 24} * * *",
                "durationSeconds": 60 * length,
                "timeZone": self.zone,
                "minReplicas": int(max(replicas, _number(values, MIN_REPLICAS, 0.0))),
            }
            for begin, length in spans
        ]


def _number(values: Mapping[str, Value], path: str, otherwise: float) -> float:
    value = values.get(path)
    return otherwise if value is None else float(value)
