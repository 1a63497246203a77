"""Counts requests' events in metrics."""

from pando_router.core.events import CacheReport, Failure, Head
from pando_router.core.flight import has_failed
from pando_router.core.route import Route
from pando_router.exchange.exchange import Exchange, Listener
from pando_router.telemetry.metrics import Metrics

_MOMENTS = {
    Failure.NO_ANSWER: "before_first_byte",
    Failure.SILENT: "before_first_byte",
    Failure.CUT_OFF: "mid_stream",
}


class RequestMetrics(Listener):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def not_sent(self, exchange: Exchange, route: Route) -> None:
        self._metrics.no_connection.labels(route.pool).inc()

    def failed(self, exchange: Exchange, route: Route, error: str, how: Failure) -> None:
        if (moment := _MOMENTS.get(how)) is not None:
            self._metrics.replica_failures.labels(route.pool, moment).inc()

    def retried(self, exchange: Exchange, route: Route, reason: str) -> None:
        self._metrics.retries.labels(route.pool, reason).inc()

    def retry_refused(self, exchange: Exchange, route: Route) -> None:
        self._metrics.retries_refused.labels(route.pool).inc()

    def answered(self, exchange: Exchange, route: Route, head: Head) -> None:
        if head.status >= 400 and has_failed(head.status):
            self._metrics.replica_failures.labels(route.pool, "status").inc()
        if exchange.ttfb_s is not None and not exchange.lost:
            kind = "stream" if head.is_stream else "whole"
            self._metrics.ttfb[route.pool, kind].observe(exchange.ttfb_s)

    def cached(
        self, exchange: Exchange, route: Route, report: CacheReport, *, was_cut: bool
    ) -> None:
        metrics, pool = self._metrics, route.pool
        metrics.prompt_tokens[pool].inc(report.prompt_tokens)
        metrics.predicted_tokens[pool].inc(route.matched_tokens)
        metrics.delivered_tokens[pool].inc(report.cached_tokens)
        if was_cut:
            metrics.cuts.labels(pool).inc()

    def ended(self, exchange: Exchange) -> None:
        self._metrics.requests[exchange.incoming.path, exchange.status].inc()
        if (route := exchange.route) is not None:
            self._metrics.duration[route.pool].observe(exchange.duration_s)
            if exchange.order is not None and (adapter := exchange.order.prompt.targets[0].adapter):
                is_load = (
                    placed := route.placement
                ) is not None and placed.chosen.adapter_load_s > 0
                self._metrics.adapters.count(route.pool, adapter, is_load=is_load)
