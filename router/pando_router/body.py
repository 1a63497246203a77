"""Reads a request's body from ASGI, bounded in bytes and in time."""

import asyncio
from collections.abc import Iterable

from starlette.types import Receive

from pando_router.errors import ApiError, ClientDisconnectedError

BODY_SECONDS = 60.0  # for all of it: who sends slower than that holds memory for nothing

# The rest of the body is not read: the connection cannot serve another request.
_CLOSE = {"connection": "close"}


async def read_body(
    receive: Receive, headers: Iterable[tuple[bytes, bytes]], max_bytes: int
) -> bytes:
    """The whole body.

    Raises ApiError 413 before reading when the declared length is above `max_bytes`, otherwise as
    soon as that many bytes have come; 408 after BODY_SECONDS; 415 for a compressed body;
    ClientDisconnectedError when the client leaves before the end.
    """
    for name, value in headers:
        if name == b"content-length" and int(value) > max_bytes:
            raise _too_large(max_bytes)
        if name == b"content-encoding" and value.lower() != b"identity":
            raise ApiError(415, "compressed request bodies are not supported", headers=_CLOSE)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnectedError
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    except TimeoutError as late:
        raise ApiError(
            408, f"the request body did not arrive within {BODY_SECONDS:.0f} s", headers=_CLOSE
        ) from late


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(
        413,
        f"the request body is longer than {max_bytes} bytes",
        code="request_too_large",
        headers=_CLOSE,
    )
