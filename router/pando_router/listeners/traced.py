"""Records a request's events as spans of its trace."""

from pando_router.core.events import Failure, Head
from pando_router.core.route import Route
from pando_router.exchange.exchange import Exchange, Listener


class Traced(Listener):
    """Only used if traces are enabled."""

    def was_busy(self, exchange: Exchange, route: Route) -> None:
        if exchange.trace is not None:
            exchange.trace.answered(429)

    def failed(self, exchange: Exchange, route: Route, error: str, how: Failure) -> None:
        if exchange.trace is not None:
            exchange.trace.failed(error)

    def answered(self, exchange: Exchange, route: Route, head: Head) -> None:
        if exchange.trace is not None:
            exchange.trace.answered(head.status)

    def ended(self, exchange: Exchange) -> None:
        trace, route = exchange.trace, exchange.route
        if trace is None:
            return
        trace.finish(
            exchange.status,
            tenant=exchange.tenant.name or None,
            pool=route.pool if route else None,
            replica=route.replica if route else None,
            matched_tokens=route.matched_tokens if route else None,
            cached_tokens=exchange.cached_tokens,
            tries=exchange.tries,
            migrations=exchange.migrations,
        )
