"""Misfits: values that others wrote and this process cannot use; skipped, counted, and logged once.

Redis and the headers of replicas have values from processes of other releases, or from manual
changes. One that does not fit its type must not hide its neighbours. There is one tally per
process, as there is one log; router and operator export it as a metric.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import msgspec

MAX_SENDERS = 1_024
"""Senders remembered as logged; above that all are forgotten, and may be logged again."""

Decoded = TypeVar("Decoded")

_log = logging.getLogger("pando.fleet")
_counts: Counter[str] = Counter()
_logged: set[tuple[str, str]] = set()


def decode(
    kind: str, sender: str, row: bytes, decoder: msgspec.json.Decoder[Decoded]
) -> Decoded | None:
    """The row as its type; None if it does not fit, which is counted as a misfit of `kind`."""
    try:
        return decoder.decode(row)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        skip(kind, sender, str(error))
        return None


def decode_name(kind: str, name: bytes) -> str | None:
    """The name as text; None if it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        skip(kind, repr(name), str(error))
        return None


def skip(kind: str, sender: str, why: str) -> None:
    """Counts a misfit, and logs the first of each sender."""
    _counts[kind] += 1
    if (kind, sender) in _logged:
        return
    if len(_logged) == MAX_SENDERS:
        _logged.clear()
    _logged.add((kind, sender))
    extra = {"kind": kind, "sender": sender, "error": why}
    _log.warning("skipped a value that does not fit", extra=extra)


class Exported:
    """Calls `add` with the number of misfits of each kind since the last `fold`."""

    def __init__(self, add: Callable[[str, int], None]) -> None:
        self._add = add
        self._exported: Counter[str] = Counter()

    def fold(self) -> None:
        for kind, count in (_counts - self._exported).items():
            self._add(kind, count)
        self._exported = _counts.copy()


def counts() -> dict[str, int]:
    """The number of misfits in this process, by kind."""
    return dict(_counts)
