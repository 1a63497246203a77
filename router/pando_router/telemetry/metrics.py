"""Every metric of a router, one registry an app; `render` is what /metrics answers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from pando_fleet.redis import misfits
from pando_router.telemetry import shared_metrics
from pando_router.telemetry.tallies import ByLabels, Count, Spread, Tally
from pando_router.telemetry.tenant_metrics import TenantMetrics

# Seconds; a cached prompt answers in milliseconds, a long queue takes minutes.
FIRST_BYTE_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_DURATION = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

REFRESH_S = 1.0  # how old what another process says may be

# What becomes of a gauge that several processes have: only of living ones.
SharedAs = Literal["livesum", "livemin"]


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._added: list[Collector] = []
        self._followed: list[Callable[[], None]] = []
        self._tallies: list[Tally] = []  # of what every request counts

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
        self.requests_in_flight = gauge("requests_in_flight", "Requests being served")
        self.body_bytes = gauge("body_bytes", "Of max_bodies_bytes, taken by requests' bodies")
        self.client_connections = gauge("client_connections", "Of clients, open now")
        self.connections_refused = counter(
            "connections_refused_total", "Clients' connections above max_connections, told 503"
        )
        self.ttfb = spreads(
            "time_to_first_byte_seconds",
            "From request to first answer byte, which for streams is the first token's",
            FIRST_BYTE_BOUNDS,
            *("pool", "kind"),
        )
        self.duration = spreads(
            "request_duration_seconds", "From request to last answer byte", _DURATION, "pool"
        )
        self.placements = counts(
            "placements_total", "Tries by how their replica was found", "policy", "outcome"
        )
        self.placement_seconds = Spread(
            histogram(
                "placement_duration_seconds",
                "A placement's round trip to Redis",
                (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
            )
        )
        self._tallies.append(self.placement_seconds)
        self.placement_errors = counter(
            "placement_errors_total",
            "Placements that failed though Redis was there: refused by it, or too many under way",
        )
        self.retries = counter(
            "retries_total", "Tries after a replica could not take it", "pool", "reason"
        )
        self.retries_refused = counter(
            "retries_refused_total", "Tries that the retry budget did not allow", "pool"
        )
        self.no_connection = counter(
            "no_connection_total",
            "Tries that found all of the router's connections to their replica in use",
            "pool",
        )
        self.queue_requests = gauge("queue_requests", "Requests waiting for a replica", "pool")
        self.queue_seconds = histogram(
            "queue_duration_seconds", "Wait for a place at a replica", _DURATION, "pool"
        )
        self.queue_ends = counter(
            "queue_ends_total", "Waits for a place at a replica, by how they ended", "pool", "end"
        )
        self.replica_failures = counter(
            "replica_failures_total", "Failures of replicas by moment", "pool", "when"
        )
        self.abandoned = counter(
            "abandoned_requests_total",
            "Requests taken from replicas that are out: stalled, lost",
            *("pool", "state"),
        )
        self.migrations = counter(
            "migrations_total", "Streams whose replica was lost, by what became of them", "outcome"
        )
        self.disconnects = counter("client_disconnects_total", "Clients that left before the end")
        self.prompt_tokens = counts(
            "prompt_tokens_total", "Prompt tokens by the replicas' count", "pool"
        )
        self.predicted_tokens = counts(
            "predicted_cached_tokens_total",
            "Prompt tokens that placement expected cached",
            "pool",
        )
        self.delivered_tokens = counts(
            "delivered_cached_tokens_total", "Prompt tokens that replicas had cached", "pool"
        )
        self.cuts = counter("path_cuts_total", "Paths cut for fewer cached tokens", "pool")
        self.tenants = TenantMetrics(self.registry)
        self.shadow_requests = counter(
            "shadow_requests_total",
            "Requests for which the shadow policy chose, too, by whether it chose the same replica",
            *("pool", "acting", "shadow", "agrees"),
        )
        self.shadow_hit_tokens = counter(
            "shadow_predicted_cached_tokens_total",
            "Prompt tokens expected cached where the acting policy and its shadow chose",
            *("pool", "role"),
        )
        self.shadow_seconds = counter(
            "shadow_predicted_seconds_total",
            "Time to first token expected where the acting policy and its shadow chose",
            *("pool", "role"),
        )
        self.hot_prefix_bytes = gauge(
            "hot_prefix_bytes", "Memory of the hottest prefixes' requests"
        )
        self.prefill_tokens = counter(
            "mark_prefill_tokens_total", "Prompt tokens computed for marks", "pool", "kind"
        )
        self.marks = counter(
            "marks_total", "Marks that this router performed or skipped", "pool", "kind", "state"
        )
        self.upstream_probes = counter(
            "upstream_probes_total",
            "Probes of static upstreams by what was found",
            *("pool", "upstream", "outcome"),
        )
        self.recorded = counter("recorded_requests_total", "Requests in the recording")
        self.not_recorded = counter(
            "unrecorded_requests_total",
            "Requests lost to the recording: too many waited, or the disk did not take them",
        )
        self.reload_failures = counter(
            "settings_reload_failures_total", "Settings files that were not taken over"
        )
        self.settings_loaded = gauge(
            "settings_loaded_timestamp_seconds",
            "When the settings in effect were loaded, Unix time; the oldest of all processes",
            shared="livemin",
        )
        self.redis_up = gauge("redis_up", "1 while Redis answers for all pools", shared="livemin")
        self.redis_writable = gauge(
            "redis_writable", "1 while Redis takes the writes of all pools", shared="livemin"
        )
        self.redis_memory = gauge(
            "redis_memory_bytes",
            "Memory of all masters: used, max (0: no bound is known), and what the trees take once"
            " they hold all that the KV pools can hold",
            "kind",
            shared="livemin",
        )
        self.lease_write_failures = counter(
            "lease_write_failures_total",
            "Lease updates that did not reach Redis; repaired once it answers",
        )
        self.home_write_failures = counter(
            "home_write_failures_total",
            "Answers of /v1/responses of which Redis was not told where they are remembered",
        )
        skipped = counter(
            "misfits_total",
            "What others wrote, in Redis or in headers, that does not fit and was skipped",
            "kind",
        )
        self._tallies.append(misfits.Exported(lambda kind, n: skipped.labels(kind).inc(n)))

    def render(self) -> bytes:
        """In the text format; of all processes where several share the port."""
        self._refresh()
        return shared_metrics.render(self.registry, self._added)

    def fold(self) -> None:
        """Tells Prometheus what was counted: at least once in REFRESH_S, and at the end."""
        for tally in self._tallies:
            tally.fold()

    def add(self, collector: Collector) -> None:
        """Also shows what `collector` finds: of this process, whoever shares its port."""
        self.registry.register(collector)
        self._added.append(collector)

    def follow(self, gauge: Gauge, value: Callable[[], float]) -> None:
        """Lets the gauge say what `value` says.

        Not by its `set_function`, which other processes on the same port could not ask.
        """
        self._follow(lambda: gauge.set(value()))

    def follow_pools(self, gauge: Gauge, values: Callable[[], Mapping[str, float]]) -> None:
        """The same for a gauge by pool; of a pool that is no more it says 0."""
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
