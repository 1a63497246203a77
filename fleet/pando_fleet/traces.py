"""Spans of requests, for routers and workers: one OpenTelemetry provider per process, over
OTLP/HTTP.

A request's `traceparent` is the parent of its span (W3C Trace Context). Spans contain names,
numbers and ids of the request, never its text. OpenTelemetry is the extra `otel`, imported only if
traces are enabled: without an endpoint there is no `Tracing`. A thread sends spans in batches; if
the collector is away they are dropped, and nothing waits for it.
"""

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field

from pando_fleet.distribution import how_to_install

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

TRACES_PATH = "/v1/traces"
SEND_S = 5.0
"""Time limit to send a batch to the collector, and the rest when the process ends."""


def _traceable(endpoint: str | None) -> str | None:
    """Returns the endpoint. Raises ValueError with advice if the extra is missing."""
    if endpoint is None:
        return None
    for module in ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter"):
        if find_spec(module) is None:
            raise ValueError(f"traces require the extra otel: {how_to_install('otel')}")
    return endpoint


OtlpEndpoint = Annotated[
    str | None,
    Field(
        pattern=r"^https?://\S+$",
        description="OpenTelemetry collector for traces, such as http://collector:4318 (OTLP over"
        " HTTP; needs the extra otel); none: no traces",
    ),
    AfterValidator(_traceable),
]
"""The type of the setting `otlp_endpoint`."""


class Tracing:
    """Creates the spans of a process's requests; call `close` at the end."""

    @classmethod
    def to(cls, endpoint: str | None, sample: float, service: str, instance: str) -> Self | None:
        """None without an endpoint.

        Args:
            endpoint: the collector's URL; `/v1/traces` is added if it has no path.
            sample: share of the traces that begin here; for others their parent has decided.
            service: `service.name` of all spans.
            instance: `service.instance.id`.
        """
        return cls(_provider(endpoint, sample, service, instance)) if endpoint else None

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("pando")

    def request(
        self, name: str, headers: Iterable[tuple[bytes, bytes]], request_id: str
    ) -> "RequestSpan":
        return RequestSpan(self._tracer, name, headers, request_id)

    async def close(self) -> None:
        """Sends what is left, for at most SEND_S, so that a hanging collector does not delay the
        end."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(done.set)

        # A daemon thread outside the loop's executor, so that the process ends without waiting.
        threading.Thread(target=shut_down, daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(SEND_S):
                await done.wait()


class RequestSpan:
    """One request's span. If it is not `kept`, do not create children."""

    def __init__(
        self,
        tracer: "Tracer",
        name: str,
        headers: Iterable[tuple[bytes, bytes]],
        request_id: str,
    ) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context

        attributes = {"pando.request_id": request_id}
        self._tracer = tracer
        self.span = tracer.start_span(
            name, _parent_of(headers), kind=SpanKind.SERVER, attributes=attributes
        )
        self._context = set_span_in_context(self.span)
        self.kept = self.span.is_recording()

    def child(self, name: str, **options: Any) -> "Span":
        """`options` are those of OpenTelemetry's `start_span`."""
        return self._tracer.start_span(name, self._context, **options)

    def finish(self, route: str, status: int | None, **attributes: str | int | None) -> None:
        """`route` must be the path as the server knows it, so that there are few; `status` is None
        if the client disconnected. Attributes that are None are left out."""
        if self.kept:
            self.span.update_name(f"POST {route}")
            self.span.set_attribute("http.route", route)
            for name, value in attributes.items():
                if value is not None:
                    self.span.set_attribute(f"pando.{name}", value)
            if status is not None:
                self.span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    fail(self.span, str(status))
        self.span.end()


def fail(span: "Span", what: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR, what)


def traceparent(span: "Span") -> bytes:
    """The header's value for a request whose parent is this span."""
    context = span.get_span_context()
    numbers = context.trace_id, context.span_id, context.trace_flags
    return b"00-%032x-%016x-%02x" % numbers


def _provider(endpoint: str, sample: float, service: str, instance: str) -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    url = endpoint.rstrip("/")
    if url.count("/") == 2:
        url += TRACES_PATH
    attributes = {"service.name": service, "service.instance.id": instance}
    made = TracerProvider(
        sampler=ParentBasedTraceIdRatio(sample),
        resource=Resource.create(attributes),
        shutdown_on_exit=False,
    )
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url, timeout=SEND_S)))
    return made


def _parent_of(headers: Iterable[tuple[bytes, bytes]]) -> "Context":
    """The span in a request's `traceparent`, if it is valid."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {
        name.decode(): value.decode("latin-1")
        for name, value in headers
        if name in (b"traceparent", b"tracestate")
    }
    if not carrier:
        return Context()
    return TraceContextTextMapPropagator().extract(carrier, Context())
