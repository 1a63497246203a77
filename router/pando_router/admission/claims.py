"""What a request that has to wait says of its turn: priority and deadline, from header and body.

Read only where a request waits: one that is placed at once pays nothing for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from pando_router.errors import bad_request

TIMEOUT_HEADER = b"x-request-timeout"
PRIORITY_HEADER = b"x-priority"
MAX_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Claims:
    priority: int  # higher first
    timeout_s: float | None  # None where the request names none


def claims(
    headers: Sequence[tuple[bytes, bytes]], body_priority: int | None, *, header_counts: bool
) -> Claims:
    """`header_counts` says whether x-priority goes before the body's priority.

    Raises ApiError 400 for a header that is no such number.
    """
    priority, timeout_s = body_priority or 0, None
    for name, value in headers:
        if name == TIMEOUT_HEADER:
            timeout_s = _seconds(value)
        elif name == PRIORITY_HEADER and header_counts:
            priority = _priority(value)
    return Claims(max(-MAX_PRIORITY, min(MAX_PRIORITY, priority)), timeout_s)


def _seconds(value: bytes) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not (isfinite(seconds) and seconds > 0):
        raise bad_request(f"x-request-timeout is seconds above 0, not {value[:40]!r}")
    return seconds


def _priority(value: bytes) -> int:
    try:
        return int(value)
    except ValueError:
        raise bad_request(f"x-priority is a whole number, not {value[:40]!r}") from None
