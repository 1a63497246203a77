"""Which status to write, and when: at once where a fact changed, now and then where words did.

Pressure, the numbers in reasons and what decisions look back at change with each look. Writing them
each time would make the API server busy with what nobody reads.
"""

from typing import Any

from pando_operator.resource.status import WorkerPoolStatus

WORDS_S = 15.0
"""Words and numbers that move all the time are written so often at most."""

HISTORY_S = 120.0
"""What only a restarted operator reads."""


def is_due(before: WorkerPoolStatus, after: WorkerPoolStatus, age_s: float) -> bool:
    """Whether `after` is to be written, `age_s` after `before` was."""
    if _facts(before) != _facts(after):
        return True
    if _words(before) != _words(after):
        return age_s >= WORDS_S
    return before != after and age_s >= HISTORY_S


def _facts(status: WorkerPoolStatus) -> dict[str, Any]:
    facts = status.model_dump(exclude={"pressure", "reason", "history", "shadows", "conditions"})
    facts["shadows"] = [(shadow.name, shadow.desired) for shadow in status.shadows]
    facts["conditions"] = [(one.type, one.status, one.reason) for one in status.conditions]
    return facts


def _words(status: WorkerPoolStatus) -> dict[str, Any]:
    return status.model_dump(exclude={"history": True, "shadows": {"__all__": {"replica_hours"}}})
