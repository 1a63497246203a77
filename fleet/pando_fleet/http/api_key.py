"""The API key of a request."""

from collections.abc import Iterable


def key_in(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The key in `Authorization: Bearer`, or else in `x-api-key`, Anthropic's header; empty if
    there is none. Names are lower case."""
    other = b""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                return key.strip()
        elif name == b"x-api-key":
            other = value.strip()
    return other


def bearer(key: str) -> tuple[bytes, bytes]:
    """The header that carries the key."""
    return b"authorization", b"Bearer " + key.encode()
