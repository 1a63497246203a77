"""The outermost layer of the HTTP server, around the FastAPI app.

It gives every request an id, protects admin endpoints, limits bodies, applies the gate, cancels the
app when the client disconnects, and logs the outcome under the request's id.
"""

import asyncio
import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

from pando_fleet.http.errors import ClientDisconnectedError
from pando_fleet.http.request_id import request_id_of
from pando_fleet.http.server.asgi import Receiving, Sending, scope_of
from pando_fleet.http.server.bodies import Bodies
from pando_fleet.http.server.incoming import Incoming
from pando_fleet.traces import Tracing
from pando_worker.server.errors import ApiError, error_in_form, internal_error, unavailable
from pando_worker.server.front.admin import Admin
from pando_worker.server.front.gate import Gate
from pando_worker.server.metrics import Metrics

log = logging.getLogger("pando.worker")

FORMS = frozenset(["/v1/audio/transcriptions", "/v1/audio/translations"])
"""Paths whose bodies are multipart/form-data, not JSON."""

_UNGATED = frozenset(["/abort_request"])  # aborting makes room, so it must not wait for room


@dataclass(frozen=True, slots=True)
class BodyLimits:
    max_bytes: int
    max_values: int  # of JSON


class Edge:
    """The handler of the worker's HTTP server."""

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        admin: Admin,
        metrics: Metrics,
        bodies: Bodies,
        limits: BodyLimits,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._app = app
        self._gate = gate
        self._admin = admin
        self._metrics = metrics
        self._bodies = bodies
        self._limits = limits

    async def __call__(self, incoming: Incoming) -> None:
        started = time.monotonic()
        request_id = request_id_of(incoming.headers)
        trace = None
        if self._tracing is not None and incoming.method == "POST":
            trace = self._tracing.request("POST", incoming.headers, request_id)
        held = ExitStack()  # until the request has ended
        scope = scope_of(incoming)
        scope["state"] = {
            "request_id": request_id,
            "received": started,
            "trace": trace,
            "held": held,
        }
        reply = _Reply(incoming, request_id)
        try:
            await self._answer(incoming, scope, reply)
        except ApiError as error:
            await reply.fail(error)
        except ClientDisconnectedError:
            if not incoming.ended:
                self._metrics.client_disconnects.inc()
        except Exception:
            log.exception("request failed", extra={"request_id": request_id})
            await reply.fail(internal_error())
        finally:
            held.close()
            path = getattr(scope.get("route"), "path", "other")
            self._metrics.http_requests.labels(path, reply.status or "gone").inc()
            if trace is not None:
                trace.finish(path, reply.status)
            log.log(
                logging.DEBUG if incoming.method == "GET" else logging.INFO,
                "%s %s",
                incoming.method,
                incoming.path,
                extra={
                    "request_id": request_id,
                    "status": reply.status,
                    "seconds": round(time.monotonic() - started, 4),
                },
            )

    async def _answer(self, incoming: Incoming, scope: dict[str, Any], reply: "_Reply") -> None:
        if incoming.method in ("GET", "HEAD"):
            await self._run(incoming, scope, reply, b"")
            return
        self._admin.check(incoming.path, incoming.headers)
        ungated = incoming.path in _UNGATED
        if not ungated:
            if incoming.crowded:
                raise unavailable(
                    "this worker has as many connections as it can serve", "overloaded"
                )
            self._gate.check()
        limits = self._limits
        max_values = None if incoming.path in FORMS else limits.max_values
        body = await incoming.body(limits.max_bytes, self._bodies, max_values=max_values)
        if ungated:
            await self._run(incoming, scope, reply, body)
        else:
            with self._gate.enter():
                await self._run(incoming, scope, reply, body)

    async def _run(
        self, incoming: Incoming, scope: dict[str, Any], reply: "_Reply", body: bytes
    ) -> None:
        """Runs the app. Raises ClientDisconnectedError as soon as the client has left."""
        with incoming.until_gone:
            await self._app(scope, Receiving(incoming, body), reply.send)


class _Reply:
    """The outgoing answer."""

    def __init__(self, incoming: Incoming, request_id: str) -> None:
        self._incoming = incoming
        self._request_id = request_id
        self._send = Sending(incoming, request_id)
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if self._incoming.gone:
            # Wait for the cancellation; otherwise the app would go on encoding unread output.
            await asyncio.get_running_loop().create_future()
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def fail(self, error: ApiError) -> None:
        """The request ends with an error; too late for an answer, its connection is cut."""
        if not self._incoming.started:
            self.status = error.status
            path = self._incoming.path
            await self._incoming.send(*error_in_form(error, path, self._request_id))
        elif not self._incoming.ended:
            self._incoming.abort()
