"""A request's span, with child spans for its placement, its wait and its tries.

A try's span is the parent of the replica's spans. Without `otlp_endpoint` a request has no
`RequestTrace`, and the data path only compares with None.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pando_fleet.http.server.headers import Headers
from pando_fleet.traces import Tracing, fail, traceparent
from pando_router.core.route import Route

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_REPLACED = frozenset((b"traceparent",))


class RequestTrace:
    def __init__(self, tracing: Tracing, path: str, headers: Headers, request_id: str) -> None:
        """`path` must be one that the router knows, so that span names are few."""
        self._path = path
        self._request = tracing.request(f"POST {path}", headers, request_id)
        self._try: Span | None = None

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A child span for the block; records an exception that leaves the block."""
        if not self._request.kept:
            yield
            return
        span = self._request.child(name)
        try:
            yield
        except BaseException as error:
            fail(span, type(error).__name__)
            raise
        finally:
            span.end()

    def placement(self, begun_ns: int, route: Route | None) -> None:
        """Records a placement from `begun_ns` until now; `route` is None if no replica had room."""
        if not self._request.kept:
            return
        span = self._request.child("placement", start_time=begun_ns)
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
        """Begins a try and ends an earlier one; returns the headers for the replica."""
        from opentelemetry.trace import SpanKind

        self._end_try()
        parent = self._request.span
        if self._request.kept:
            attributes = {"pando.replica": route.replica}
            self._try = parent = self._request.child(
                "replica", kind=SpanKind.CLIENT, attributes=attributes
            )
        passed_on = [header for header in headers if header[0] not in _REPLACED]
        passed_on.append((b"traceparent", traceparent(parent)))
        return passed_on

    def answered(self, status: int) -> None:
        """The first byte of the try's answer arrived."""
        if self._try is not None:
            self._try.set_attribute("http.response.status_code", status)
            self._try.add_event("first byte")

    def failed(self, error: str) -> None:
        """The try failed, before or during its answer."""
        if self._try is not None:
            fail(self._try, error)
            self._end_try()

    def finish(self, status: int, **attributes: str | int | None) -> None:
        """Ends the request's span. Attributes that are None are left out."""
        self._end_try()
        self._request.finish(self._path, status, **attributes)

    def _end_try(self) -> None:
        if self._try is not None:
            self._try.end()
            self._try = None
