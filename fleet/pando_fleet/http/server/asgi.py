"""Runs an ASGI app behind Pando's own server: the router's control plane, and the worker's API.

No lifespan, no WebSockets. A request's body is read, up to a limit, before the app is called, and
after its sender was admitted.
"""

from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message

from pando_fleet.current import Current
from pando_fleet.http.errors import ApiError, ClientDisconnectedError, error_answer
from pando_fleet.http.request_id import request_id_of
from pando_fleet.http.server.bodies import Bodies
from pando_fleet.http.server.headers import Headers
from pando_fleet.http.server.incoming import Incoming


class AsgiHandler:
    """A handler for the server that passes requests to an ASGI app."""

    def __init__(
        self,
        app: ASGIApp,
        max_body_bytes: Current[int],
        bodies: Bodies,
        max_values: Current[int] | None = None,
        admit: Callable[[dict[str, Any]], str | None] = lambda scope: None,
    ) -> None:
        """
        Args:
            max_values: of a body, as `JsonValues` counts them; None if bodies are not JSON
            admit: called with a request's scope before its body is read; returns whose body it is,
                None for its address; raises ApiError to refuse the request
        """
        self._app = app
        self._bodies = bodies
        self._max_body_bytes = max_body_bytes
        self._max_values = max_values
        self._admit = admit

    async def __call__(self, incoming: Incoming) -> None:
        scope, request_id = scope_of(incoming), request_id_of(incoming.headers)
        try:
            client = self._admit(scope)
        except ApiError as error:
            await incoming.send(*error_answer(error, request_id))
            return
        body = b""
        if incoming.method not in ("GET", "HEAD"):
            body = await incoming.body(
                self._max_body_bytes.now,
                self._bodies,
                client=client,
                max_values=self._max_values.now if self._max_values else None,
            )
        await self._app(scope, Receiving(incoming, body), Sending(incoming, request_id))


def scope_of(incoming: Incoming) -> dict[str, Any]:
    """The app's description of a request."""
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


class Receiving:
    """The app's `receive`: the whole body, then the disconnect."""

    def __init__(self, incoming: Incoming, body: bytes) -> None:
        self._incoming = incoming
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._incoming.left()
        return {"type": "http.disconnect"}


class Sending:
    """The app's `send`. Adds the request's id to the answer."""

    def __init__(self, incoming: Incoming, request_id: str) -> None:
        self._incoming = incoming
        self._request_id = request_id.encode()

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
