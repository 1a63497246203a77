"""A request's time limit, from its headers; the router and workers read it alike.

A client's limit counts from its request's arrival. The router subtracts its own time and sends the
rest to the replica.
"""

import re
from collections.abc import Sequence
from math import inf, isfinite

from pando_fleet.http.errors import bad_request
from pando_fleet.http.server.headers import name_of

SECONDS = b"x-request-timeout"
MILLISECONDS = b"x-request-timeout-ms"
HEADERS = frozenset((SECONDS, MILLISECONDS))

_COUNT = re.compile(rb"[1-9][0-9]{0,8}")
_MAX_MS = 999_999_999  # nine digits


def time_limit_s(headers: Sequence[tuple[bytes, bytes]]) -> float:
    """The time limit in seconds, the shortest one in the headers; infinity without one.

    Header names must be lower case. Raises ApiError 400 for an invalid value.
    """
    if HEADERS.isdisjoint(map(name_of, headers)):
        return inf
    limit_s = inf
    for name, value in headers:
        if name in HEADERS:
            read = _seconds if name == SECONDS else _milliseconds
            # Blanks after a header's value are not part of it.
            limit_s = min(limit_s, read(value.strip()))
    return limit_s


def time_left(left_s: float) -> tuple[bytes, bytes]:
    """The header for a replica. An expired limit is sent as 1 ms, and the replica decides what
    happens to the request."""
    return MILLISECONDS, b"%d" % max(1, int(min(1000 * left_s, _MAX_MS)))


def _seconds(value: bytes) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not (isfinite(seconds) and seconds > 0):
        name = SECONDS.decode()
        raise bad_request(f"{name} must be seconds above 0, not {_shown(value)}", name)
    return seconds


def _milliseconds(value: bytes) -> float:
    if not _COUNT.fullmatch(value):
        name = MILLISECONDS.decode()
        message = f"{name} must be a whole number of milliseconds above 0, not {_shown(value)}"
        raise bad_request(message, name)
    return int(value) / 1000


def _shown(value: bytes) -> str:
    return repr(value[:40].decode("latin-1"))
