"""Metrics by tenant. Labels are names from the key file only, so there are few."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge


@dataclass(frozen=True, slots=True)
class TenantCounts:
    """One tenant's counters, looked up once."""

    requests: Counter
    prompt_tokens: Counter
    output_tokens: Counter
    limited_requests: Counter
    limited_tokens: Counter


class TenantMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pando_router_{name}", text, labels, registry=registry)

        self._requests = counter("tenant_requests_total", "Requests with a tenant's key", "tenant")
        self._tokens = counter(
            "tenant_tokens_total", "Tokens of answered requests", "tenant", "kind"
        )
        self._limited = counter(
            "tenant_limited_total", "Requests above a rate limit", "tenant", "limit"
        )
        self.unchecked_limits = counter(
            "rate_limits_unchecked_total", "Requests served with their tenant's limits unchecked"
        )
        self.lost_settlements = counter(
            "rate_limit_settlements_lost_total", "Corrections of used tokens lost to Redis"
        )
        self.refused_keys = counter("refused_api_keys_total", "Requests that got 401", "reason")
        self.keys_valid = Gauge(
            "pando_router_api_keys_valid",
            "0 while the key file is invalid and older keys are in effect",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._counts: dict[str, TenantCounts] = {}

    def of(self, tenant: str) -> TenantCounts:
        counts = self._counts.get(tenant)
        if counts is None:
            counts = self._counts[tenant] = TenantCounts(
                self._requests.labels(tenant),
                self._tokens.labels(tenant, "prompt"),
                self._tokens.labels(tenant, "output"),
                self._limited.labels(tenant, "requests"),
                self._limited.labels(tenant, "tokens"),
            )
        return counts

    def forget(self, tenant: str) -> None:
        """Removes a tenant that is no longer in the key file."""
        if self._counts.pop(tenant, None):
            self._requests.remove(tenant)
            for kind in ("prompt", "output"):
                self._tokens.remove(tenant, kind)
            for limit in ("requests", "tokens"):
                self._limited.remove(tenant, limit)
