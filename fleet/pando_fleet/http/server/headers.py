"""Header lists, with lower-case names and unchanged values, and how a head is written."""

from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus

Header = tuple[bytes, bytes]
Headers = list[Header]


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
