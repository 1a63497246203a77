"""How long a request may take: the client's header, within the worker's own limit."""

import time
from math import inf

from starlette.requests import Request

from pando_fleet.http.time_limit import time_limit_s
from pando_worker.server.errors import deadline_passed


def remaining_s(request: Request, limit_s: float | None) -> float | None:
    """Seconds left of the request's time, counted from its arrival; None if it has no limit.

    Raises ApiError 400 if the header is not a time, 504 if no time is left.
    """
    allowed_s = min(time_limit_s(request.headers.raw), limit_s or inf)
    if allowed_s == inf:
        return None
    left_s = allowed_s - (time.monotonic() - float(request.state.received))
    if left_s <= 0:
        raise deadline_passed(f"the request's {allowed_s:g} s passed before it was scheduled")
    return left_s
