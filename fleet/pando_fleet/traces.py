"""Where routers and workers send their spans: one OpenTelemetry provider a process, over OTLP/HTTP.

OpenTelemetry is the extra `otel`, and imported only where traces are wanted. Spans are sent by a
thread in batches; where the collector is away they are dropped, and nothing waits for it.
"""

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

TRACES_PATH = "/v1/traces"
SEND_S = 5.0
"""For a batch to reach the collector, and for all that is left at the process's end."""


def check_installed() -> None:
    """Raises ValueError with what to do where the extra is missing."""
    for module in ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter"):
        if find_spec(module) is None:
            raise ValueError("traces need the extra otel: pip install 'pando[otel]'")


def provider(
    endpoint: str, sample: float, service: str, instance: str | None = None
) -> "TracerProvider":
    """To be given to `close` at the end, which sends what is left.

    Args:
        endpoint: the collector's URL; `/v1/traces` is added where it has no path.
        sample: share of the traces that begin here; others go by what their parent decided.
        service: `service.name` of all spans.
        instance: `service.instance.id`, where there is one.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    url = endpoint.rstrip("/")
    if url.count("/") == 2:
        url += TRACES_PATH
    attributes = {"service.name": service}
    if instance:
        attributes["service.instance.id"] = instance
    made = TracerProvider(
        sampler=ParentBasedTraceIdRatio(sample),
        resource=Resource.create(attributes),
        shutdown_on_exit=False,
    )
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url, timeout=SEND_S)))
    return made


async def close(provider: "TracerProvider") -> None:
    """Sends what is left, for SEND_S at most: a collector that hangs must not hold up the end."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        provider.shutdown()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(done.set)

    # A daemon, and none of the loop's own threads: the process ends without waiting for it.
    threading.Thread(target=shut_down, daemon=True).start()
    with suppress(TimeoutError):
        async with asyncio.timeout(SEND_S):
            await done.wait()


def parent_of(headers: Iterable[tuple[bytes, bytes]]) -> "Context":
    """The span that a request's `traceparent` names, if it has a valid one."""
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


def traceparent(span: "Span") -> bytes:
    """The header's value for a request whose parent is this span."""
    context = span.get_span_context()
    numbers = context.trace_id, context.span_id, context.trace_flags
    return b"00-%032x-%016x-%02x" % numbers
