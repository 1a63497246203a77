"""Samples the router's metrics once a second for the dashboard's history."""

import asyncio
from collections.abc import Callable
from time import time

from prometheus_client import Counter

from pando_router.dashboard.events import FleetEvents
from pando_router.dashboard.history import INTERVAL_S, History, Totals
from pando_router.dashboard.replica_totals import ReplicaTotals
from pando_router.errors import CLIENT_CLOSED_REQUEST
from pando_router.fleet_view.view import FleetView
from pando_router.process.lifecycle import Lifecycle
from pando_router.telemetry.metrics import FIRST_BYTE_BOUNDS, Metrics
from pando_router.telemetry.tallies import ByLabels, Count


class Sampler:
    """`run` fills `history`, `events` and `replicas`."""

    def __init__(
        self,
        metrics: Metrics,
        view: FleetView,
        lifecycle: Lifecycle,
        queue_lengths: Callable[[], dict[str, int]],
    ) -> None:
        self._metrics = metrics
        self._view = view
        self._lifecycle = lifecycle
        self._queue_lengths = queue_lengths
        self.replicas = ReplicaTotals()
        self.events = FleetEvents()
        self.history = History((*FIRST_BYTE_BOUNDS, float("inf")))

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(INTERVAL_S)

    def sample(self) -> None:
        at, fleet = time(), self._view.fleet
        self.events.look(at, fleet, self._view.redis.worst)
        self.replicas.follow(at, (one.beat for members in fleet.pools.values() for one in members))
        counted = self.replicas.sum
        answered, refused, failed = self._requests()
        metrics = self._metrics
        self.history.add(
            Totals(
                at=at,
                answered=answered,
                refused=refused,
                failed=failed,
                prompt_tokens=_sum(metrics.prompt_tokens),
                predicted_tokens=_sum(metrics.predicted_tokens),
                delivered_tokens=_sum(metrics.delivered_tokens),
                cuts=_sum(metrics.cuts),
                first_tokens=self._first_tokens(),
                gap_s=counted.gap_s,
                gaps=counted.gaps,
                tokens_in=counted.tokens_in,
                tokens_out=counted.tokens_out,
                in_flight=self._lifecycle.requests,
                queued=sum(self._queue_lengths().values()),
            )
        )

    def _requests(self) -> tuple[float, float, float]:
        """Requests that were answered, refused and failed; those whose client left are neither."""
        answered = refused = failed = 0.0
        for family in self._metrics.requests.collect():
            for sample in family.samples:
                if not sample.name.endswith("_total"):
                    continue
                status = int(sample.labels["status"])
                if status < 400:
                    answered += sample.value
                elif status >= 500:
                    failed += sample.value
                elif status != CLIENT_CLOSED_REQUEST:
                    refused += sample.value
        return answered, refused, failed

    def _first_tokens(self) -> tuple[float, ...]:
        """Streams of all pools by time to first byte, as cumulative buckets."""
        counts = dict.fromkeys((*FIRST_BYTE_BOUNDS, float("inf")), 0.0)
        for family in self._metrics.ttfb.collect():
            for sample in family.samples:
                if sample.name.endswith("_bucket") and sample.labels["kind"] == "stream":
                    counts[float(sample.labels["le"])] += sample.value
        return tuple(counts.values())


def _sum(metric: ByLabels[Counter, Count] | Counter) -> float:
    """The sum over all labels of a counter."""
    return sum(
        sample.value
        for family in metric.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    )
