"""Header lists, with lower-case names and unchanged values: filtering and writing them."""

from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus

from pando_fleet.http.time_limit import HEADERS as TIME_LIMITS

Header = tuple[bytes, bytes]
Headers = list[Header]

# Valid for one connection only, not forwarded (RFC 9110, 7.6.1).
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)
# Client headers that are set anew for each replica, or handled by the router.
NOT_FORWARDED = _HOP_BY_HOP | TIME_LIMITS | {b"host", b"content-length", b"expect", b"x-request-id"}
# Replica headers that the router sets in every answer itself.
NOT_RETURNED = _HOP_BY_HOP | {
    b"content-length",
    b"x-request-id",
    b"x-pando-replica",
    b"x-pando-matched-tokens",
}

_NAMES_NOTHING = frozenset((b"keep-alive", b"close"))  # the usual values of `connection`


def without(headers: Headers, left_out: frozenset[bytes], connection: bytes) -> Headers:
    """`headers` without `left_out` and without those that `connection`, if not empty, names."""
    if connection and connection.lower() not in _NAMES_NOTHING:
        left_out = left_out.union(token.strip().lower() for token in connection.split(b","))
    return [header for header in headers if header[0] not in left_out]


@lru_cache(maxsize=1024)
def status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}".encode()


def head(first_line: bytes, headers: Iterable[Header]) -> bytes:
    """The first line, the headers, and the blank line."""
    return b"\r\n".join((first_line, *map(b": ".join, headers), b"\r\n"))
