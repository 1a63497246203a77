"""The time from a decision to a ready replica, learned from those that became ready."""

from statistics import median

from pando_operator.scaling.history import History

STARTS_KEPT = 16

BELONGS_S = 600.0
"""A pod that came later after a decision to grow was made for another reason."""


def learned_start_s(starts: tuple[float, ...]) -> float | None:
    """Their median, which one pull of an image does not move; None where there are none."""
    return median(starts) if starts else None


def with_start(starts: tuple[float, ...], seconds: float) -> tuple[float, ...]:
    """The last `STARTS_KEPT` of them, newest last. What is not above 0 is left out."""
    return (*starts, seconds)[-STARTS_KEPT:] if seconds > 0 else starts


def decided_at(history: History, created_s: float) -> float:
    """When the decision was made for which a pod was created: the last growth before that."""
    grown = [
        event.at_s
        for event in history.events
        if event.change > 0 and created_s - BELONGS_S <= event.at_s <= created_s + 1.0
    ]
    return min(created_s, max(grown, default=created_s))
