"""A waiting request's priority among those of its tenant, from header and body.

Read only when a request waits, so that one that is placed at once pays nothing.
"""

from collections.abc import Sequence

from pando_router.errors import bad_request
from pando_router.http.headers import PRIORITY_HEADER

MAX_PRIORITY = 2**31 - 1


def priority_of(
    headers: Sequence[tuple[bytes, bytes]], body_priority: int | None, *, header_counts: bool
) -> int:
    """The priority; smaller goes first. If `header_counts`, x-priority overrides the body.

    Raises ApiError 400 if the header is not an integer.
    """
    priority = body_priority or 0
    if header_counts:
        for name, value in headers:
            if name == PRIORITY_HEADER:
                priority = _number(value)
    return max(-MAX_PRIORITY, min(MAX_PRIORITY, priority))


def _number(value: bytes) -> int:
    try:
        return int(value)
    except ValueError:
        raise bad_request(f"x-priority must be an integer, not {value[:40]!r}") from None
