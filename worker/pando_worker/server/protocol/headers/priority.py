"""A request's priority by header, for clients and routers that leave the body alone."""

from starlette.requests import Request

from pando_worker.server.errors import bad_request

HEADER = "x-priority"
_MOST = 2**31 - 1


def header_priority(request: Request) -> int | None:
    """Smaller goes first; None without the header. Raises ApiError 400 if it is not an integer."""
    value = request.headers.get(HEADER)
    if value is None:
        return None
    try:
        return max(-_MOST, min(_MOST, int(value)))
    except ValueError:
        raise bad_request(f"{HEADER} must be an integer, not {value[:40]!r}", HEADER) from None
