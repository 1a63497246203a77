"""Gauges of what exists now, read when they are asked for: replicas and queues.

A replica or pool that is gone is gone from /metrics too, and no request pays for keeping them.
"""

from collections.abc import Callable, Iterator, Set

from prometheus_client.metrics_core import GaugeMetricFamily

from pando_router.breaker import Breaker, BreakerState
from pando_router.fleet_view import FleetView

_BREAKER = {BreakerState.CLOSED: 0, BreakerState.PROBING: 1, BreakerState.OPEN: 2}


class ReplicaMetrics:
    """A collector for prometheus_client's registry."""

    def __init__(
        self,
        view: FleetView,
        breaker: Breaker,
        unhealthy: Set[str],
        queue_lengths: Callable[[], dict[str, int]],
    ) -> None:
        self._view = view
        self._breaker = breaker
        self._unhealthy = unhealthy
        self._queue_lengths = queue_lengths

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
                breaker.add_metric(labels, _BREAKER[self._breaker.state(incarnation)])
                healthy.add_metric(labels, incarnation not in self._unhealthy)
        queued = GaugeMetricFamily(
            "pando_router_queue_requests", "Requests waiting for a replica", labels=("pool",)
        )
        for pool, length in self._queue_lengths().items():
            queued.add_metric((pool,), length)
        yield from (breaker, healthy, queued)
