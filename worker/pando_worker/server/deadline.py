"""How long a request may take: the client's header, within the worker's own limit."""

import re
import time

from starlette.requests import Request

from pando_worker.server.errors import bad_request, deadline_passed

HEADER = "x-request-timeout-ms"
_MILLISECONDS = re.compile("[1-9][0-9]{0,8}")


def remaining_s(request: Request, limit_s: float | None) -> float | None:
    """Seconds left of the request's time, which began when it came in; None where it has no limit.

    Raises ApiError 400 for a header that is no count of milliseconds, 504 where no time is left.
    """
    allowed_s = limit_s
    if (header := request.headers.get(HEADER)) is not None:
        header = header.strip()  # blanks behind a header's value are not part of it
        if not _MILLISECONDS.fullmatch(header):
            raise bad_request(f"{HEADER} is {header[:40]!r}, no count of milliseconds", HEADER)
        allowed_s = min(int(header) / 1000, limit_s or float("inf"))
    if allowed_s is None:
        return None
    left_s = allowed_s - (time.monotonic() - float(request.state.received))
    if left_s <= 0:
        raise deadline_passed(f"the request's {allowed_s:g} s passed before it was scheduled")
    return left_s
