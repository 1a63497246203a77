"""Decides when to write a status: at once if a fact changed, less often if only its words did.

Pressure, the numbers in reasons and the history change at each reconcile. Writing them every time
would load the API server with values that nobody reads.
"""

from typing import Any

from pando_operator.resource.status import WorkerPoolStatus

WORDS_S = 15.0
"""Shortest interval between two writes that change only words and numbers."""

HISTORY_S = 120.0
"""Shortest interval between two writes that change only the history and the traffic of the day,
which a restarted operator reads."""


_NO_FACTS = {"pressure", "reason", "history", "shadows", "adapters", "conditions", "tuning"}


def is_due(before: WorkerPoolStatus, after: WorkerPoolStatus, age_s: float) -> bool:
    """Whether to write `after` now, `age_s` seconds after `before` was written."""
    if _facts(before) != _facts(after):
        return True
    if _words(before) != _words(after):
        return age_s >= WORDS_S
    return before != after and age_s >= HISTORY_S


def _facts(status: WorkerPoolStatus) -> dict[str, Any]:
    facts = status.model_dump(exclude=_NO_FACTS)
    facts["adapters"] = [one.model_dump(exclude={"state"}) for one in status.adapters]
    facts["shadows"] = [(shadow.name, shadow.desired) for shadow in status.shadows]
    facts["tuning"] = status.tuning and (status.tuning.trace, status.tuning.other)
    facts["conditions"] = [(one.type, one.status, one.reason) for one in status.conditions]
    return facts


def _words(status: WorkerPoolStatus) -> dict[str, Any]:
    return status.model_dump(
        exclude={"history": True, "tuning": True, "shadows": {"__all__": {"replica_hours"}}}
    )
