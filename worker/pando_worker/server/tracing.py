"""Traces: a span for each request, with children for each choice's queue, prefill and decode.

Joined to the router's by the `traceparent` that it sends. Spans have names, numbers and the
request's id, never its text. Without `otlp_endpoint` there is no `Tracing`. The parts are written
when they are over, from times that are measured anyway.
"""

from collections.abc import Iterable
from time import time_ns
from typing import TYPE_CHECKING

from pando_worker.settings import WorkerSettings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

SERVICE = "pando-worker"


class Tracing:
    """Makes requests' traces. Imports OpenTelemetry."""

    @classmethod
    def of(cls, settings: WorkerSettings, replica: str) -> "Tracing | None":
        if settings.otlp_endpoint is None:
            return None
        from pando_fleet.traces import provider

        return cls(provider(settings.otlp_endpoint, settings.trace_sample, SERVICE, replica))

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("pando_worker")

    def request(self, headers: Iterable[tuple[bytes, bytes]], request_id: str) -> "RequestTrace":
        from opentelemetry.trace import SpanKind

        from pando_fleet.traces import parent_of

        span = self._tracer.start_span(
            "POST",
            parent_of(headers),
            kind=SpanKind.SERVER,
            attributes={"pando.request_id": request_id},
        )
        return RequestTrace(self._tracer, span)

    async def close(self) -> None:
        """Sends what is left; the collector gets a few seconds for it."""
        from pando_fleet.traces import close

        await close(self._provider)


class RequestTrace:
    def __init__(self, tracer: "Tracer", span: "Span") -> None:
        from opentelemetry.trace import set_span_in_context

        self._tracer = tracer
        self._span = span
        self._context: Context = set_span_in_context(span)

    def choice(self) -> "ChoiceTrace | None":
        """For a choice that is handed to the scheduler now; None where nobody would see it."""
        if not self._span.is_recording():
            return None
        return ChoiceTrace(self._tracer, self._span, self._context)

    def finish(self, path: str, status: int | None) -> None:
        """`path` is the route's, of which there are few; no status: the client had left."""
        from opentelemetry.trace import StatusCode

        self._span.update_name(f"POST {path}")
        self._span.set_attribute("http.route", path)
        if status is not None:
            self._span.set_attribute("http.response.status_code", status)
            if status >= 500:
                self._span.set_status(StatusCode.ERROR)
        self._span.end()


class ChoiceTrace:
    """One choice of a request: when it began, when its first token came, when it was over."""

    def __init__(self, tracer: "Tracer", span: "Span", context: "Context") -> None:
        self._tracer = tracer
        self._span = span
        self._context = context
        self._sent_ns = time_ns()
        self._first_ns = 0

    def first_token(self, queue_s: float | None, prompt_tokens: int, cached_tokens: int) -> None:
        """`queue_s`: in the scheduler's queue, from when the request was handed to it."""
        self._first_ns = time_ns()
        begun_ns = min(self._sent_ns + int((queue_s or 0.0) * 1e9), self._first_ns)
        self._part("queue", self._sent_ns, begun_ns)
        self._part(
            "prefill",
            begun_ns,
            self._first_ns,
            {"pando.prompt_tokens": prompt_tokens, "pando.cached_tokens": cached_tokens},
        )
        self._span.add_event("first token", timestamp=self._first_ns)

    def finish(self, output_tokens: int, reason: str) -> None:
        attributes: dict[str, str | int] = {
            "pando.output_tokens": output_tokens,
            "pando.finish_reason": reason,
        }
        self._part("decode", self._first_ns or self._sent_ns, time_ns(), attributes)

    def _part(
        self,
        name: str,
        begun_ns: int,
        ended_ns: int,
        attributes: dict[str, str | int] | None = None,
    ) -> None:
        self._tracer.start_span(
            name,
            self._context,
            start_time=begun_ns,
            attributes=attributes,
        ).end(ended_ns)
