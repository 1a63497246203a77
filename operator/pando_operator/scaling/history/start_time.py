"""Learns the time from a decision to a ready replica from those that became ready."""

from collections.abc import Sequence
from statistics import median

from pando_operator.scaling.history.history import History

STARTS_KEPT = 16

SAME_S = 1.0
"""Tolerance, since Kubernetes gives creation times in whole seconds."""

BELONGS_S = 600.0
"""A pod created later after a decision to grow has another cause."""


def learned_start_s(starts: tuple[float, ...]) -> float | None:
    """Their median, which one slow image pull does not change; None without any."""
    return median(starts) if starts else None


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
