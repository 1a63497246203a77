"""Runs an ASGI app behind the router's own server: for the control plane, where speed is secondary.

No lifespan, no WebSockets. A request's body is read, up to a limit, before the app is called.
"""

from typing import Any

from starlette.types import ASGIApp, Message

from pando_fleet.http.request_id import request_id_of
from pando_router.current import Current
from pando_router.errors import ClientDisconnectedError
from pando_router.http.byte_budget import ByteBudget
from pando_router.http.headers import Headers
from pando_router.http.incoming import Incoming


class AsgiHandler:
    """A handler for the server that passes requests to an ASGI app."""

    def __init__(self, app: ASGIApp, max_body_bytes: Current[int], bodies: ByteBudget) -> None:
        """`bodies` is the memory budget for the bodies of all requests."""
        self._app = app
        self._bodies = bodies
        self._max_body_bytes = max_body_bytes

    async def __call__(self, incoming: Incoming) -> None:
        body = await incoming.body(self._max_body_bytes.now, self._bodies)
        request_id = request_id_of(incoming.headers).encode()
        await self._app(_scope(incoming), _Receive(incoming, body), _Send(incoming, request_id))


def _scope(incoming: Incoming) -> dict[str, Any]:
    return {
        "type": "http",
        # Not 2.4, with which a stream would notice a disconnect only at its next chunk.
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1" if incoming.http_1_1 else "1.0",
        "method": incoming.method,
        "scheme": "http",
        "path": incoming.path,
        "raw_path": incoming.target.partition(b"?")[0],
        "query_string": incoming.query,
        "root_path": "",
        "headers": incoming.headers,
        "client": incoming.peer,
        "server": None,
    }


class _Receive:
    def __init__(self, incoming: Incoming, body: bytes) -> None:
        self._incoming = incoming
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._incoming.left()
        return {"type": "http.disconnect"}


class _Send:
    def __init__(self, incoming: Incoming, request_id: bytes) -> None:
        self._incoming = incoming
        self._request_id = request_id

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Headers = [(b"x-request-id", self._request_id)]
            length: int | None = None
            for name, value in message["headers"]:
                if name.lower() == b"content-length":
                    length = int(value)
                else:
                    headers.append((name.lower(), value))
            self._incoming.start(message["status"], headers, length)
        elif message["type"] == "http.response.body":
            await self._body(message.get("body", b""), more=message.get("more_body", False))

    async def _body(self, chunk: bytes, *, more: bool) -> None:
        if more:
            try:
                if not self._incoming.write(chunk):
                    await self._incoming.writable()
            except ClientDisconnectedError as error:
                raise OSError("the client has disconnected") from error
        elif not self._incoming.ended:
            self._incoming.end(chunk)
