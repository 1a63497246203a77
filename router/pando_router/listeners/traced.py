"""A request's events as spans of its trace."""

from pando_router.core.events import Failure, Head, Listener
from pando_router.core.route import Route
from pando_router.exchange import Exchange
from pando_router.tracing import RequestTrace


class Traced(Listener):
    __slots__ = ("_exchange", "_trace")

    def __init__(self, exchange: Exchange, trace: RequestTrace) -> None:
        self._exchange = exchange
        self._trace = trace

    def was_busy(self, route: Route) -> None:
        self._trace.answered(429)

    def failed(self, route: Route, error: str, how: Failure) -> None:
        self._trace.failed(error)

    def answered(self, route: Route, head: Head) -> None:
        self._trace.answered(head.status)

    def ended(self) -> None:
        exchange = self._exchange
        route = exchange.route
        self._trace.finish(
            exchange.status,
            tenant=exchange.tenant.name or None,
            pool=route.pool if route else None,
            replica=route.replica if route else None,
            matched_tokens=route.matched_tokens if route else None,
            cached_tokens=exchange.cached_tokens,
            tries=exchange.tries,
            migrations=exchange.migrations,
        )
