"""How long a request may take, as its headers say: alike at the router and at a worker.

A client counts from its request's arrival. The router counts its own time off and tells the replica
what is left.
"""

import re
from collections.abc import Iterable
from math import inf, isfinite

from pando_fleet.http.errors import bad_request

SECONDS = b"x-request-timeout"
MILLISECONDS = b"x-request-timeout-ms"
HEADERS = frozenset((SECONDS, MILLISECONDS))

_COUNT = re.compile(rb"[1-9][0-9]{0,8}")
_MAX_MS = 999_999_999  # of nine digits


def time_limit_s(headers: Iterable[tuple[bytes, bytes]]) -> float:
    """Seconds, the fewest that the headers name; infinity where they name none.

    Names are in lower case. Raises ApiError 400 for a header that is no time.
    """
    limit_s = inf
    for name, value in headers:
        if name in HEADERS:
            read = _seconds if name == SECONDS else _milliseconds
            # Blanks behind a header's value are not part of it.
            limit_s = min(limit_s, read(value.strip()))
    return limit_s


def time_left(left_s: float) -> tuple[bytes, bytes]:
    """The header that tells a replica. A time that has passed is 1 ms: what then becomes of the
    request is the replica's to say."""
    return MILLISECONDS, b"%d" % max(1, int(min(1000 * left_s, _MAX_MS)))


def _seconds(value: bytes) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not (isfinite(seconds) and seconds > 0):
        name = SECONDS.decode()
        raise bad_request(f"{name} is seconds above 0, not {_shown(value)}", name)
    return seconds


def _milliseconds(value: bytes) -> float:
    if not _COUNT.fullmatch(value):
        name = MILLISECONDS.decode()
        message = f"{name} is a whole number of milliseconds above 0, not {_shown(value)}"
        raise bad_request(message, name)
    return int(value) / 1000


def _shown(value: bytes) -> str:
    return repr(value[:40].decode("latin-1"))
