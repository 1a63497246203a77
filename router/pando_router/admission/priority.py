"""A waiting request's priority among its tenant's own, from header and body.

Read only where a request waits: one that is placed at once pays nothing for it.
"""

from collections.abc import Sequence

from pando_router.errors import bad_request

PRIORITY_HEADER = b"x-priority"
MAX_PRIORITY = 2**31 - 1


def priority_of(
    headers: Sequence[tuple[bytes, bytes]], body_priority: int | None, *, header_counts: bool
) -> int:
    """Higher goes first. `header_counts` says whether x-priority goes before the body's priority.

    Raises ApiError 400 for a header that is no whole number.
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
        raise bad_request(f"x-priority is a whole number, not {value[:40]!r}") from None
