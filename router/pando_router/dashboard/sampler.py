"""Samples the router's metrics once a second for the dashboard's history."""

import asyncio
from collections.abc import Callable
from time import time

from prometheus_client import Counter

from pando_router.dashboard.history import INTERVAL_S, History, Totals
from pando_router.errors import CLIENT_CLOSED_REQUEST
from pando_router.fleet_view.view import FleetView
from pando_router.process.lifecycle import Lifecycle
from pando_router.telemetry.metrics import FIRST_BYTE_BOUNDS, Metrics
from pando_router.telemetry.tallies import ByLabels, Count


class Sampler:
    """`run` fills `history`."""

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
        self._gaps: dict[str, tuple[float, int]] = {}  # by incarnation, as last reported
        self._gap_s = 0.0
        self._gap_count = 0
        self.history = History((*FIRST_BYTE_BOUNDS, float("inf")))

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(INTERVAL_S)

    def sample(self) -> None:
        self._follow_gaps()
        answered, refused, failed = self._requests()
        metrics = self._metrics
        self.history.add(
            Totals(
                at=time(),
                answered=answered,
                refused=refused,
                failed=failed,
                prompt_tokens=_sum(metrics.prompt_tokens),
                predicted_tokens=_sum(metrics.predicted_tokens),
                delivered_tokens=_sum(metrics.delivered_tokens),
                first_tokens=self._first_tokens(),
                gap_s=self._gap_s,
                gaps=self._gap_count,
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

    def _follow_gaps(self) -> None:
        """Adds what the replicas measured since the last call; a new one starts at zero."""
        known = self._gaps
        self._gaps = {}
        for members in self._view.fleet.pools.values():
            for beat in (member.beat for member in members):
                now = (beat.inter_token_seconds_total, beat.inter_tokens_total)
                before = known.get(beat.incarnation, now)
                self._gaps[beat.incarnation] = now
                self._gap_s += max(0.0, now[0] - before[0])
                self._gap_count += max(0, now[1] - before[1])


def _sum(metric: ByLabels[Counter, Count]) -> float:
    """The sum over all labels of a counter."""
    return sum(
        sample.value
        for family in metric.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    )
