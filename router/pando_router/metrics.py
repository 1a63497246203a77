"""Every metric of a router, one registry an app; `render` is what /metrics answers."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pando_router.tenants.tenant_metrics import TenantMetrics

# Seconds; a cached prompt answers in milliseconds, a long queue takes minutes.
_TTFB = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_DURATION = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pando_router_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"pando_router_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(
                f"pando_router_{name}", text, labels, registry=self.registry, buckets=buckets
            )

        self.requests = counter("requests_total", "Answered requests", "path", "status")
        self.requests_in_flight = gauge("requests_in_flight", "Requests being served")
        self.ttfb = histogram(
            "time_to_first_byte_seconds", "From request to first answer byte", _TTFB, "pool"
        )
        self.duration = histogram(
            "request_duration_seconds", "From request to last answer byte", _DURATION, "pool"
        )
        self.placements = counter(
            "placements_total", "Tries by how their replica was found", "policy", "outcome"
        )
        self.placement_seconds = histogram(
            "placement_duration_seconds",
            "A placement's round trip to Redis",
            (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
        )
        self.retries = counter("retries_total", "Tries after a replica failed", "pool")
        self.replica_failures = counter(
            "replica_failures_total", "Failures of replicas by moment", "pool", "when"
        )
        self.disconnects = counter("client_disconnects_total", "Clients that left before the end")
        self.prompt_tokens = counter(
            "prompt_tokens_total", "Prompt tokens by the replicas' count", "pool"
        )
        self.predicted_tokens = counter(
            "predicted_cached_tokens_total", "Prompt tokens that placement expected cached", "pool"
        )
        self.delivered_tokens = counter(
            "delivered_cached_tokens_total", "Prompt tokens that replicas had cached", "pool"
        )
        self.cuts = counter("path_cuts_total", "Paths cut for fewer cached tokens", "pool")
        self.tenants = TenantMetrics(self.registry)
        self.redis_up = gauge("redis_up", "1 while Redis answers")
        self.lease_write_failures = counter(
            "lease_write_failures_total", "Lease updates that Redis never saw; leases expire"
        )

    def render(self) -> bytes:
        return generate_latest(self.registry)
