"""Gives the dashboard its recent requests and its migrations."""

from time import time

from pando_router.core.route import Route
from pando_router.core.tries import MID_STREAM
from pando_router.dashboard.events import FleetEvents
from pando_router.dashboard.requests import RecentRequests, RequestRow
from pando_router.exchange.exchange import Exchange, Listener


class Dashboard(Listener):
    def __init__(self, requests: RecentRequests, events: FleetEvents) -> None:
        self._requests = requests
        self._events = events

    def retried(self, exchange: Exchange, route: Route, reason: str) -> None:
        if reason == MID_STREAM and (lost := exchange.route) is not None:
            self._events.migrated(lost.pool, lost.replica)

    def ended(self, exchange: Exchange) -> None:
        order, route, report = exchange.order, exchange.route, exchange.report
        target = order.prompt.targets[0] if order is not None else None
        stream = exchange.stream
        self._requests.add(
            RequestRow(
                self._requests.last + 1,
                time(),
                exchange.request_id,
                exchange.incoming.path,
                "" if target is None else target.adapter or target.model,
                exchange.tenant.name,
                "" if route is None else route.pool,
                "" if route is None else route.replica,
                exchange.status,
                exchange.is_complete,
                exchange.ttfb_s,
                exchange.duration_s,
                None if report is None else report.prompt_tokens,
                None if report is None else report.cached_tokens,
                exchange.tries,
                0 if stream is None else stream.migrations,
            )
        )
