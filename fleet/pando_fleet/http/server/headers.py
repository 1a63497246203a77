"""Header lists, with lower-case names and unchanged values, and how a head is written."""

from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from operator import itemgetter

Header = tuple[bytes, bytes]
Headers = list[Header]

name_of = itemgetter(0)
"""A header's name. `map(name_of, headers)` costs a fraction of a loop, which most requests do not
need, as they have none of the rarer headers."""


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
