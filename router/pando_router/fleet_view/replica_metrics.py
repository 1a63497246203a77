"""Gauges of the current replicas, computed when Prometheus scrapes.

So a replica that is gone disappears from /metrics, and requests do not pay for updates.
"""

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily

from pando_router.core.breaker import BreakerState
from pando_router.core.flight import Flights
from pando_router.fleet_view.view import FleetView

_BREAKER = {BreakerState.CLOSED: 0, BreakerState.PROBING: 1, BreakerState.OPEN: 2}


class ReplicaMetrics:
    """A collector for prometheus_client's registry."""

    def __init__(self, view: FleetView, flights: Flights) -> None:
        self._view = view
        self._flights = flights

    def collect(self) -> Iterator[GaugeMetricFamily]:
        breaker = GaugeMetricFamily(
            "pando_router_replica_breaker",
            "0 closed, 1 waiting for a probe, 2 open",
            labels=("pool", "replica"),
        )
        healthy = GaugeMetricFamily(
            "pando_router_replica_healthy",
            "0 where health checks fail",
            labels=("pool", "replica"),
        )
        for pool, members in self._view.fleet.pools.items():
            for member in members:
                labels, incarnation = (pool, member.beat.replica), member.beat.incarnation
                breaker.add_metric(labels, _BREAKER[self._flights.breaker.state(incarnation)])
                healthy.add_metric(labels, incarnation not in self._flights.unhealthy)
        yield from (breaker, healthy)
