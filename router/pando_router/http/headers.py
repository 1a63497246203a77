"""Header lists: names in lower case, values as they came; which go on, and how they are written."""

from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus

from pando_fleet.http.time_limit import HEADERS as TIME_LIMITS

Header = tuple[bytes, bytes]
Headers = list[Header]

# Meant for one connection, not for the next (RFC 9110, 7.6.1).
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
# Made anew for each replica, or already dealt with here.
_NOT_FORWARDED = (
    _HOP_BY_HOP | TIME_LIMITS | {b"host", b"content-length", b"expect", b"x-request-id"}
)
# Added to every answer, or made anew for the client.
_NOT_RETURNED = _HOP_BY_HOP | {b"x-request-id", b"x-pando-replica", b"x-pando-matched-tokens"}

_NAMES_NOTHING = frozenset((b"keep-alive", b"close"))  # what `connection` mostly says


def forwarded(headers: Headers, request_id: str) -> Headers:
    """A client's headers as the replica gets them."""
    kept = _without(headers, _NOT_FORWARDED)
    kept.append((b"x-request-id", request_id.encode()))
    return kept


def returned(headers: Headers) -> Headers:
    """A replica's headers as the client gets them, without those that the router adds itself."""
    return _without(headers, _NOT_RETURNED)


def _without(headers: Headers, left_out: frozenset[bytes]) -> Headers:
    """Without `left_out` and without those that a `connection` header names."""
    for name, value in headers:
        if name == b"connection" and value.lower() not in _NAMES_NOTHING:
            left_out = left_out.union(token.strip().lower() for token in value.split(b","))
    return [header for header in headers if header[0] not in left_out]


@lru_cache(maxsize=1024)
def status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


def head(first_line: bytes, headers: Iterable[Header]) -> bytes:
    """The first line, which ends with CRLF, the headers, and the blank line."""
    lines = [b": ".join(header) for header in headers]
    lines += (b"", b"")
    return first_line + b"\r\n".join(lines)
