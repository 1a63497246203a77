"""Learns the time from a decision to a ready replica from those that became ready."""

from collections.abc import Sequence
from statistics import median

from pando_operator.resource.policy import START_LIMIT_S
from pando_operator.scaling.history.history import History

STARTS_KEPT = 16

LATE, LATE_LEAST_S = 2.0, 120.0
"""A replica is late after so many learned start times, but not before so many seconds."""

SAME_S = 1.0
"""Tolerance, since Kubernetes gives creation times in whole seconds."""

BELONGS_S = 600.0
"""A pod created later after a decision to grow has another cause."""


def learned_start_s(starts: tuple[float, ...]) -> float | None:
    """Their median, which one slow image pull does not change; None without any."""
    return median(starts) if starts else None


def late_after_s(start_s: float | None) -> float:
    """After how long a replica that is not ready is no longer expected to be ready soon."""
    return START_LIMIT_S if start_s is None else max(LATE_LEAST_S, LATE * start_s)


def with_start(starts: tuple[float, ...], seconds: float) -> tuple[float, ...]:
    """Add a start time and keep the last `STARTS_KEPT`, newest last. Ignores 0 and less."""
    return (*starts, seconds)[-STARTS_KEPT:] if seconds > 0 else starts


def decided_at(history: History, created_s: float, others_s: Sequence[float] = ()) -> float:
    """When the decision was made that created a pod: at the last growth before its creation.

    If that growth already has all of its pods, a rollout or a lost pod caused this one, and its
    creation counts.

    Args:
        others_s: when the pool's other pods were created.
    """
    grown = [
        event
        for event in history.events
        if event.change > 0 and created_s - BELONGS_S <= event.at_s <= created_s + SAME_S
    ]
    if not grown:
        return created_s
    last = max(grown, key=lambda event: event.at_s)
    before = sum(last.at_s - SAME_S <= other_s < created_s for other_s in others_s)
    return min(created_s, last.at_s) if before < last.change else created_s
