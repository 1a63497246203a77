"""Compares a pool's traffic with that which its scaling was tuned on, day by day.

What is compared is in the status, so a restart of the operator loses two minutes and no week.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pando_fleet.registry.replica import Heartbeat, Replica
from pando_operator.resource.status import TrafficDay, TuningStatus
from pando_operator.resource.tuned_on import TunedOn

DAY = timedelta(days=1)
WEEK = timedelta(days=7)
"""The time of other traffic after which the condition holds: shorter, a holiday would do."""
GAP = timedelta(minutes=10)
"""A day of which more is missing begins anew."""

FACTOR = 1.5
"""Arrivals and lengths are others if a day's mean is so many times the trace's, or the reverse."""
POINTS = 0.15  # by which the hit rate may differ
LEAST_REQUESTS = 100  # of a day; fewer say nothing of lengths and hits


@dataclass(frozen=True, slots=True)
class Traffic:
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    @classmethod
    def of(cls, beat: Heartbeat) -> "Traffic":
        """Since the worker's start."""
        return cls(
            beat.prompts_total,
            beat.prompt_tokens_total,
            beat.cached_prompt_tokens_total,
            beat.prompts_total + beat.decoded_tokens_total,
        )


@dataclass(slots=True)
class TrafficMeter:
    """What a pool's workers count, as differences."""

    _known: dict[str, Traffic] = field(default_factory=dict)  # by incarnation
    _has_begun: bool = False

    def more(self, replicas: Sequence[Replica]) -> Traffic:
        """Since the last call; of workers that the first one saw, since then."""
        now = {one.beat.incarnation: Traffic.of(one.beat) for one in replicas}
        pairs = [
            (self._known.get(name, Traffic() if self._has_begun else traffic), traffic)
            for name, traffic in now.items()
        ]
        # One whose heartbeats pause for a while comes back with more, not anew.
        self._known = {**self._known, **now} if replicas else self._known
        while len(self._known) > _MOST_KNOWN:
            self._known.pop(next(iter(self._known)))
        self._has_begun = True
        return Traffic(
            sum(after.requests - before.requests for before, after in pairs),
            sum(after.prompt_tokens - before.prompt_tokens for before, after in pairs),
            sum(after.cached_tokens - before.cached_tokens for before, after in pairs),
            sum(after.output_tokens - before.output_tokens for before, after in pairs),
        )


_MOST_KNOWN = 10_000


def followed(
    before: TuningStatus | None, tuned: TunedOn | None, more: Traffic, now: datetime
) -> TuningStatus | None:
    """The status with the traffic since the last call."""
    if tuned is None:
        return None
    date = tuned.date.isoformat()
    if before is None or (before.trace, before.date) != (tuned.trace, date):
        return TuningStatus(trace=tuned.trace, date=date, day=TrafficDay(since=now, until=now))
    if now - before.day.until > GAP:
        return before.model_copy(update={"day": TrafficDay(since=now, until=now)})
    day = TrafficDay(
        since=before.day.since,
        until=now,
        requests=before.day.requests + more.requests,
        prompt_tokens=before.day.prompt_tokens + more.prompt_tokens,
        cached_tokens=before.day.cached_tokens + more.cached_tokens,
        output_tokens=before.day.output_tokens + more.output_tokens,
    )
    if now - day.since < DAY:
        return before.model_copy(update={"day": day})
    other = ", ".join(_differences(tuned, day))
    return TuningStatus(
        trace=tuned.trace,
        date=date,
        day=TrafficDay(since=now, until=now),
        other_since=(before.other_since or day.since) if other else None,
        other=other,
    )


def has_other_traffic(tuning: TuningStatus, now: datetime) -> bool:
    return tuning.other_since is not None and now - tuning.other_since >= WEEK


def _differences(tuned: TunedOn, day: TrafficDay) -> Iterator[str]:
    per_hour = day.requests / ((day.until - day.since) / timedelta(hours=1))
    if _differs(per_hour, tuned.requests_per_hour):
        yield f"{per_hour:,.0f} requests an hour instead of {tuned.requests_per_hour:,.0f}"
    if day.requests < LEAST_REQUESTS:
        return
    prompt, output = day.prompt_tokens / day.requests, day.output_tokens / day.requests
    if _differs(prompt, tuned.prompt_tokens):
        yield f"prompts of {prompt:,.0f} tokens instead of {tuned.prompt_tokens:,.0f}"
    if _differs(output, tuned.output_tokens):
        yield f"answers of {output:,.0f} tokens instead of {tuned.output_tokens:,.0f}"
    hits = day.cached_tokens / day.prompt_tokens if day.prompt_tokens else 0.0
    if tuned.hit_rate is not None and abs(hits - tuned.hit_rate) > POINTS:
        yield f"a hit rate of {hits:.0%} instead of {tuned.hit_rate:.0%}"


def _differs(mean: float, tuned: float) -> bool:
    return mean > FACTOR * tuned or tuned > FACTOR * mean
