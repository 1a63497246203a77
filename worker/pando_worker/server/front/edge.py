"""The outermost layer of the HTTP server, around the FastAPI app.

It gives every request an id, limits bodies, applies the gate, cancels the app when the client
disconnects, and logs the outcome under the request's id.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable
from contextlib import ExitStack, nullcontext

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pando_fleet.http.request_id import request_id_of
from pando_fleet.traces import Tracing
from pando_worker.server.errors import ApiError, error_response, unavailable
from pando_worker.server.front.connections import CROWDED
from pando_worker.server.front.gate import Gate
from pando_worker.server.metrics import Metrics

log = logging.getLogger("pando.worker")

_UNGATED = frozenset(["/abort_request"])  # aborting makes room, so it must not wait for room


class Edge:
    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        metrics: Metrics,
        max_body_bytes: int,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._app = app
        self._gate = gate
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.monotonic()
        request_id = request_id_of(scope["headers"])
        trace = None
        if self._tracing is not None and scope["method"] == "POST":
            trace = self._tracing.request("POST", scope["headers"], request_id)
        held = ExitStack()  # until the request has ended
        scope["state"] |= {
            "request_id": request_id,
            "received": started,
            "trace": trace,
            "held": held,
        }
        crowded = scope["state"].get(CROWDED, False)
        reply = _Reply(send, request_id, self._gate, crowded=crowded)
        body = _Body(scope, receive, self._max_body_bytes)
        try:
            try:
                await self._answer(scope, receive, body, reply)
            except ApiError as error:
                await body.discard()
                await error_response(error)(scope, receive, reply.send)
        except ClientGoneError:
            self._metrics.client_disconnects.inc()
        except Exception:
            log.exception("request failed", extra={"request_id": request_id})
            if not reply.complete:
                raise  # too late for an error answer: the server cuts the connection
        finally:
            held.close()
            path = getattr(scope.get("route"), "path", "other")
            self._metrics.http_requests.labels(path, reply.status or "gone").inc()
            if trace is not None:
                trace.finish(path, reply.status)
            log.log(
                logging.DEBUG if scope["method"] == "GET" else logging.INFO,
                "%s %s",
                scope["method"],
                scope["path"],
                extra={
                    "request_id": request_id,
                    "status": reply.status,
                    "seconds": round(time.monotonic() - started, 4),
                },
            )

    async def _answer(self, scope: Scope, receive: Receive, body: "_Body", reply: "_Reply") -> None:
        if scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, reply.send)
            return
        ungated = scope["path"] in _UNGATED
        if scope["state"].get(CROWDED) and not ungated:
            raise unavailable("this worker has as many connections as it can serve", "overloaded")
        with nullcontext() if ungated else self._gate.enter():
            app = self._app(scope, _replay(await body.read()), reply.send)
            await _until_disconnect(app, receive, reply)


class ClientGoneError(Exception):
    """The client disconnected before its answer was complete."""


class _Reply:
    """The outgoing answer: adds the headers that every answer has."""

    def __init__(self, send: Send, request_id: str, gate: Gate, *, crowded: bool) -> None:
        self._send = send
        self._request_id = request_id
        self._gate = gate
        self._crowded = crowded
        self.status: int | None = None
        self.complete = False
        self.client_left: asyncio.Future[Message] | None = None  # done: the sender is cancelled

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], (b"x-request-id", self._request_id.encode())]
            if self._gate.draining or self._crowded or self.status == 413:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        else:
            self.complete = not message.get("more_body", False)
        await self._send(message)
        if not self.complete and self.client_left is not None and self.client_left.done():
            # Wait for the cancellation; otherwise the app would go on encoding unread output.
            await asyncio.get_running_loop().create_future()


class _Body:
    """The incoming body, limited in length."""

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        self._announced = int(lengths[0]) if lengths else 0
        self._more = True

    async def read(self) -> bytes:
        """The whole body. Raises ApiError 413 if it is too long."""
        body = bytearray()
        while self._more and self._announced <= self._limit >= len(body):
            body += await self._part()
        if self._more or len(body) > self._limit:
            raise ApiError(413, f"the request body is longer than {self._limit} bytes")
        return bytes(body)

    async def discard(self) -> None:
        """Read some of what a refused client still sends: one cut off would not see the answer."""
        size = 0
        while self._more and size <= self._limit:
            size += len(await self._part())

    async def _part(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self._more = message.get("more_body", False)
        return bytes(message.get("body", b""))


def _replay(body: bytes) -> Receive:
    """A `receive` for the app: yields the body, then blocks, because the edge watches the
    client."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        silence: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await silence

    return receive


async def _until_disconnect(app: Awaitable[None], receive: Receive, reply: _Reply) -> None:
    """Runs the app; if the client disconnects, cancels it and raises ClientGoneError.

    The whole body has been received, so `receive` can only return the disconnect (which the server
    also sends after a complete answer).
    """
    task = asyncio.ensure_future(app)
    watcher = reply.client_left = asyncio.ensure_future(receive())

    def cancel(_: object) -> None:
        if not reply.complete:
            task.cancel()

    watcher.add_done_callback(cancel)
    try:
        await task
    except asyncio.CancelledError:
        if watcher.done() and not watcher.cancelled():
            raise ClientGoneError from None
        raise
    finally:
        watcher.remove_done_callback(cancel)
        watcher.cancel()
