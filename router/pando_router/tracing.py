"""Traces: a span for each request, with children for its placement, its wait and its tries.

A client's `traceparent` is the parent of the request's span, and each replica gets its try's span
as its parent, so that its own spans join (W3C Trace Context). Spans have names, numbers and ids of
the request, never its text. Without `otlp_endpoint` there is no `Tracing`, and a request has no
`RequestTrace`: the data path then pays for a comparison with None.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pando_fleet.traces import close, parent_of, provider, traceparent
from pando_router.http.headers import Headers
from pando_router.route import Route
from pando_router.settings import RouterSettings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

SERVICE = "pando-router"

_REPLACED = frozenset((b"traceparent",))


class Tracing:
    """Makes requests' traces. Imports OpenTelemetry."""

    @classmethod
    def of(cls, settings: RouterSettings) -> "Tracing | None":
        if settings.otlp_endpoint is None:
            return None
        instance = f"{socket.gethostname()}:{os.getpid()}"
        return cls(provider(settings.otlp_endpoint, settings.trace_sample, SERVICE, instance))

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("pando_router")

    def request(self, path: str, headers: Headers, request_id: str) -> "RequestTrace":
        """`path` is one of those that the router knows, so that there are few names of spans."""
        from opentelemetry.trace import SpanKind

        span = self._tracer.start_span(
            f"POST {path}",
            parent_of(headers),
            kind=SpanKind.SERVER,
            attributes={"http.route": path, "pando.request_id": request_id},
        )
        return RequestTrace(self._tracer, span)

    async def close(self) -> None:
        """Sends what is left; the collector gets a few seconds for it."""
        await close(self._provider)


class RequestTrace:
    """One request's span and those of its parts, which are not made where it is not kept."""

    def __init__(self, tracer: "Tracer", span: "Span") -> None:
        from opentelemetry.trace import set_span_in_context

        self._tracer = tracer
        self._span = span
        self._context: Context = set_span_in_context(span)
        self._try: Span | None = None
        self._kept = span.is_recording()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A child span around the block; an exception that leaves it is named."""
        if not self._kept:
            yield
            return
        span = self._tracer.start_span(name, self._context)
        try:
            yield
        except BaseException as error:
            _fail(span, type(error).__name__)
            raise
        finally:
            span.end()

    def placed(self, begun_ns: int, route: Route | None) -> None:
        """A placement that began then and is over; None where no replica had room."""
        if not self._kept:
            return
        span = self._tracer.start_span("placement", self._context, start_time=begun_ns)
        if route is not None:
            span.set_attributes(
                {
                    "pando.pool": route.pool,
                    "pando.replica": route.replica,
                    "pando.matched_tokens": route.matched_tokens,
                    "pando.leased": route.lease is not None,
                }
            )
        span.end()

    def asks(self, route: Route, headers: Headers) -> Headers:
        """A try begins: the headers that the replica gets. A try before it ends."""
        from opentelemetry.trace import SpanKind

        self._end_try()
        parent = self._span
        if self._kept:
            self._try = parent = self._tracer.start_span(
                "replica",
                self._context,
                kind=SpanKind.CLIENT,
                attributes={"pando.replica": route.replica},
            )
        passed_on = [header for header in headers if header[0] not in _REPLACED]
        passed_on.append((b"traceparent", traceparent(parent)))
        return passed_on

    def answered(self, status: int) -> None:
        """The first byte of the try's answer has come."""
        if self._try is not None:
            self._try.set_attribute("http.response.status_code", status)
            self._try.add_event("first byte")

    def failed(self, error: str) -> None:
        """The try has failed, before its answer or amid it."""
        if self._try is not None:
            _fail(self._try, error)
            self._end_try()

    def finish(self, status: int, **attributes: str | int | None) -> None:
        """The request is over. Attributes that are None are left out."""
        self._end_try()
        span = self._span
        if self._kept:
            span.set_attribute("http.response.status_code", status)
            for name, value in attributes.items():
                if value is not None:
                    span.set_attribute(f"pando.{name}", value)
            if status >= 500:
                _fail(span, str(status))
        span.end()

    def _end_try(self) -> None:
        if self._try is not None:
            self._try.end()
            self._try = None


def _fail(span: "Span", what: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR, what)
