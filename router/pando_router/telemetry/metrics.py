"""Every metric of a router, with one registry per app; `render` returns the page of /metrics."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from pando_fleet.redis import misfits
from pando_router.telemetry import shared_metrics
from pando_router.telemetry.adapter_metrics import AdapterMetrics
from pando_router.telemetry.tallies import ByLabels, Count, Spread, Tally
from pando_router.telemetry.tenant_metrics import TenantMetrics

# Seconds: a cached prompt is answered in milliseconds, a long queue takes minutes.
FIRST_BYTE_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_DURATION = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

REFRESH_S = 1.0  # how old the values of another process may be

# How gauges of several processes are combined; the values of dead processes are left out.
SharedAs = Literal["livesum", "livemin"]


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._added: list[Collector] = []
        self._followed: list[Callable[[], None]] = []
        self._tallies: list[Tally] = []  # folded at each scrape

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pando_router_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str, shared: SharedAs = "livesum") -> Gauge:
            return Gauge(
                f"pando_router_{name}",
                text,
                labels,
                registry=self.registry,
                multiprocess_mode=shared,
            )

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(
                f"pando_router_{name}", text, labels, registry=self.registry, buckets=buckets
            )

        def counts(name: str, text: str, *labels: str) -> ByLabels[Counter, Count]:
            made = ByLabels(counter(name, text, *labels), Count)
            self._tallies.append(made)
            return made

        def spreads(
            name: str, text: str, buckets: tuple[float, ...], *labels: str
        ) -> ByLabels[Histogram, Spread]:
            made = ByLabels(histogram(name, text, buckets, *labels), Spread)
            self._tallies.append(made)
            return made

        self.requests = counts("requests_total", "Answered requests", "path", "status")
        self.requests_in_flight = gauge("requests_in_flight", "Requests in progress")
        self.body_bytes = gauge("body_bytes", "Memory of request bodies, of max_bodies_bytes")
        self.client_connections = gauge("client_connections", "Open connections of clients")
        self.connections_refused = counter(
            "connections_refused_total", "Connections above max_connections, answered 503"
        )
        self.ttfb = spreads(
            "time_to_first_byte_seconds",
            "From request to first byte of the answer, for streams the first token",
            FIRST_BYTE_BOUNDS,
            *("pool", "kind"),
        )
        self.duration = spreads(
            "request_duration_seconds", "From request to last byte of the answer", _DURATION, "pool"
        )
        self.placements = counts(
            "placements_total", "Tries, by how their replica was chosen", "policy", "outcome"
        )
        self.volatile_lines = counter(
            "volatile_lines_total",
            "Prompts without their first line, which changes with every call",
            "form",
        )
        self.changing_beginnings = counter(
            "changing_beginnings_total",
            "Prompts like an earlier one but for a few early bytes, so that caches did not help;"
            " compared are 10/s at most",
            "model",
        )
        self.placement_seconds = Spread(
            histogram(
                "placement_duration_seconds",
                "Round trip to Redis of a placement",
                (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
            )
        )
        self._tallies.append(self.placement_seconds)
        self.placement_errors = counter(
            "placement_errors_total",
            "Placements that failed with Redis up: it refused, or too many were in progress",
        )
        self.retries = counter(
            "retries_total", "Retries after a replica did not take the request", "pool", "reason"
        )
        self.retries_refused = counter(
            "retries_refused_total", "Retries that the retry budget did not allow", "pool"
        )
        self.no_connection = counter(
            "no_connection_total",
            "Tries that found all connections from this router to their replica in use",
            "pool",
        )
        self.queue_requests = gauge("queue_requests", "Requests waiting for a replica", "pool")
        self.queue_seconds = histogram(
            "queue_duration_seconds", "Wait in the queue for a replica", _DURATION, "pool"
        )
        self.queue_ends = counter(
            "queue_ends_total", "Waits in the queue for a replica, by how they ended", "pool", "end"
        )
        self.replica_failures = counter(
            "replica_failures_total", "Failures of replicas, by when they failed", "pool", "when"
        )
        self.abandoned = counter(
            "abandoned_requests_total",
            "Requests withdrawn from stalled and lost replicas",
            *("pool", "state"),
        )
        self.migrations = counter(
            "migrations_total", "Streams whose replica was lost, by their outcome", "outcome"
        )
        self.disconnects = counter(
            "client_disconnects_total", "Clients that disconnected before the end"
        )
        self.prompt_tokens = counts(
            "prompt_tokens_total", "Prompt tokens, as replicas report them", "pool"
        )
        self.predicted_tokens = counts(
            "predicted_cached_tokens_total",
            "Prompt tokens that placement expected to be cached",
            "pool",
        )
        self.delivered_tokens = counts(
            "delivered_cached_tokens_total", "Prompt tokens that replicas had cached", "pool"
        )
        self.cuts = counter("path_cuts_total", "Paths cut where a replica keeps nothing", "pool")
        self.tenants = TenantMetrics(self.registry)
        self.adapters = AdapterMetrics(self.registry)
        self.shadow_requests = counter(
            "shadow_requests_total",
            "Requests compared with the shadow policy, by whether it chose the same replica",
            *("pool", "acting", "shadow", "agrees"),
        )
        self.shadow_hit_tokens = counter(
            "shadow_predicted_cached_tokens_total",
            "Prompt tokens expected to be cached at the choice of the acting and the shadow policy",
            *("pool", "role"),
        )
        self.shadow_seconds = counter(
            "shadow_predicted_seconds_total",
            "Expected time to first token at the choice of the acting and the shadow policy",
            *("pool", "role"),
        )
        self.hot_prefix_bytes = gauge("hot_prefix_bytes", "Memory that the hottest prefixes use")
        self.prefill_tokens = counter(
            "mark_prefill_tokens_total", "Prompt tokens computed for marks", "pool", "kind"
        )
        self.marks = counter(
            "marks_total", "Marks that this router performed or skipped", "pool", "kind", "state"
        )
        self.upstream_probes = counter(
            "upstream_probes_total",
            "Probes of static upstreams, by outcome",
            *("pool", "upstream", "outcome"),
        )
        self.recorded = counter("recorded_requests_total", "Requests in the recording")
        self.not_recorded = counter(
            "unrecorded_requests_total",
            "Requests not recorded: too many waited, or the disk failed",
        )
        self.reload_failures = counter(
            "settings_reload_failures_total", "Reloads of the settings file that failed"
        )
        self.settings_loaded = gauge(
            "settings_loaded_timestamp_seconds",
            "When the settings in effect were loaded, in Unix time; the oldest process's",
            shared="livemin",
        )
        self.redis_up = gauge("redis_up", "1 while Redis answers for all pools", shared="livemin")
        self.redis_writable = gauge(
            "redis_writable", "1 while Redis accepts writes for all pools", shared="livemin"
        )
        self.redis_memory = gauge(
            "redis_memory_bytes",
            "Memory of all masters: used, max (0: no bound is known), and what the trees need when"
            " they hold everything that the KV pools can hold",
            "kind",
            shared="livemin",
        )
        self.lease_write_failures = counter(
            "lease_write_failures_total",
            "Lease updates that did not reach Redis; repaired once it answers",
        )
        self.home_write_failures = counter(
            "home_write_failures_total",
            "Answers of /v1/responses whose replica could not be stored in Redis",
        )
        skipped = counter(
            "misfits_total",
            "Skipped values, in Redis or in headers, that another writer got wrong",
            "kind",
        )
        self._tallies.append(misfits.Exported(lambda kind, n: skipped.labels(kind).inc(n)))

    def render(self) -> bytes:
        """The page in the text format, for all processes that share the port."""
        self._refresh()
        return shared_metrics.render(self.registry, self._added)

    def fold(self) -> None:
        """Exports the tallies to Prometheus: at least once in REFRESH_S, and at the end."""
        for tally in self._tallies:
            tally.fold()

    def add(self, collector: Collector) -> None:
        """Also exports what `collector` finds, from this process only."""
        self.registry.register(collector)
        self._added.append(collector)

    def follow(self, gauge: Gauge, value: Callable[[], float]) -> None:
        """Exports `value()` as the gauge.

        This does not use `set_function`, which other processes on the port could not call.
        """
        self._follow(lambda: gauge.set(value()))

    def follow_pools(self, gauge: Gauge, values: Callable[[], Mapping[str, float]]) -> None:
        """The same for a gauge by pool; a pool that has disappeared is exported as 0."""
        seen: set[str] = set()

        def refresh() -> None:
            found = values()
            seen.update(found)
            for pool in seen:
                gauge.labels(pool).set(found.get(pool, 0))

        self._follow(refresh)

    def _follow(self, refresh: Callable[[], None]) -> None:
        if not self._followed:
            asyncio.get_running_loop().call_later(REFRESH_S, self._keep_fresh)
        self._followed.append(refresh)
        refresh()

    def _keep_fresh(self) -> None:
        asyncio.get_running_loop().call_later(REFRESH_S, self._keep_fresh)
        self._refresh()

    def _refresh(self) -> None:
        for refresh in self._followed:
            refresh()
        self.fold()
