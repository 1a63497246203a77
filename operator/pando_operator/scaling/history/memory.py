"""Converts a history to the plain values of a WorkerPool's status and back, for the next operator.

It leaves out samples, counters and the time of the last request: nothing was observed while no
operator ran, so a restart counts as a request. Without recommendations the current size counts as
recommended, so a restart never shrinks a pool in haste. With the defaults it is a few hundred
bytes, at worst about 20 kB (`EVENTS_KEPT` and `USAGE_KEPT`).
"""

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from pando_operator.scaling.history.history import History, Recommendation, ScaleEvent, Usage
from pando_operator.scaling.history.pace import Pace

_SCALARS = {
    "panicAt": "panic_at_s",
    "panicReplicas": "panic_replicas",
    "usageUntil": "seen_s",
    "capacityTokens": "capacity_tokens",
    "residenceSeconds": "residence_s",
    "usableShare": "usable_share",
}
_LISTS = {
    "highs": ("highs", Recommendation, (float, int)),
    "lows": ("lows", Recommendation, (float, int)),
    "events": ("events", ScaleEvent, (float, int, int, str)),
    "usage": ("usage", Usage, (float, float)),
}


def to_status(history: History) -> dict[str, Any]:
    """JSON values; times are seconds since 1970, to the millisecond."""
    kept: dict[str, Any] = {
        name: [[_short(value) for value in astuple(entry)] for entry in getattr(history, field)]
        for name, (field, _, _) in _LISTS.items()
    }
    if history.pace.at_s:
        kept["pace"] = [_short(value) for value in astuple(history.pace)]
    kept |= {name: _short(getattr(history, field)) for name, field in _SCALARS.items()}
    return {name: value for name, value in kept.items() if value not in (None, [])}


def from_status(kept: Mapping[str, Any]) -> History:
    """The history that `to_status` stored. Raises ValueError if `kept` has another form."""
    values: dict[str, Any] = {}
    try:
        for name, (field, entry, types) in _LISTS.items():
            rows = kept.get(name, ())
            values[field] = tuple(
                entry(*(kind(value) for kind, value in zip(types, row, strict=True)))
                for row in rows
            )
        if "pace" in kept:
            values["pace"] = Pace(*map(float, kept["pace"]))
        for name, field in _SCALARS.items():
            if name in kept:
                whole = name in ("panicReplicas", "capacityTokens")
                values[field] = int(kept[name]) if whole else float(kept[name])
    except (TypeError, ValueError) as error:
        raise ValueError(f"the history in the status has an unknown form: {error}") from error
    return History(**values)


def _short(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value
