"""The time from a decision to a ready replica, learned from those that became ready."""

from collections.abc import Sequence
from statistics import median

from pando_operator.scaling.history.history import History

STARTS_KEPT = 16

SAME_S = 1.0
"""Kubernetes tells the time of a creation in whole seconds."""

BELONGS_S = 600.0
"""A pod that came later after a decision to grow was made for another reason."""


def learned_start_s(starts: tuple[float, ...]) -> float | None:
    """Their median, which one pull of an image does not move; None where there are none."""
    return median(starts) if starts else None


def with_start(starts: tuple[float, ...], seconds: float) -> tuple[float, ...]:
    """The last `STARTS_KEPT` of them, newest last. What is not above 0 is left out."""
    return (*starts, seconds)[-STARTS_KEPT:] if seconds > 0 else starts


def decided_at(history: History, created_s: float, others_s: Sequence[float] = ()) -> float:
    """When the decision was made for which a pod was created: the last growth before that, unless
    it has its pods already; then a rollout or a lost pod made it.

    `others_s` is when the pool's other pods were created.
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
