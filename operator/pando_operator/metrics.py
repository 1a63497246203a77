"""All metrics of the operator, in one registry; /metrics answers with `render`."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pando_fleet.redis import misfits

_CALL_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LOOP_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_POOL = ("namespace", "pool")


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pando_operator_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"pando_operator_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(
                f"pando_operator_{name}", text, labels, registry=self.registry, buckets=buckets
            )

        self.leading = gauge("leading", "1 while this operator leads")
        self.redis_up = gauge("redis_up", "1 while Redis answers the leading operator")
        self.reconciles = counter(
            "reconciles_total",
            "Reconciles of a pool by outcome: ok, api (the API server failed), redis (Redis"
            " failed), error (a defect)",
            *_POOL,
            "outcome",
        )
        self.reconcile_seconds = histogram(
            "reconcile_duration_seconds", "Duration of one reconcile of a pool", _LOOP_BOUNDS
        )
        self.api_calls = histogram(
            "api_call_duration_seconds",
            "Calls to the API server by HTTP status, or unreachable",
            _CALL_BOUNDS,
            *("verb", "resource", "outcome"),
        )
        self.watch_restarts = counter(
            "watch_restarts_total", "Watches that broke off or expired", "resource"
        )
        self.cache_age = gauge(
            "cache_age_seconds", "Time since the API server last confirmed the cached objects"
        )
        self.replicas = gauge(
            "replicas",
            "Pods of a pool by state: ready, starting, stalled, draining",
            *_POOL,
            "state",
        )
        self.desired = gauge("desired_replicas", "Pods that the pool should have", *_POOL)
        self.recommended = gauge(
            "recommended_replicas", "Pods that Auto would want, in mode Recommend", *_POOL
        )
        self.shadow = gauge(
            "shadow_replicas", "Pods that a shadow policy would want", *_POOL, "policy"
        )
        self.pressure = gauge("pressure_ratio", "KV demand over capacity, as last seen", *_POOL)
        self.degraded = gauge("degraded", "1 while the pool's condition Degraded is True", *_POOL)
        self.decisions = counter(
            "decisions_total", "Changes of the desired size", *_POOL, "direction"
        )
        self.actions = counter(
            "actions_total",
            "Steps carried out: SetMark, ClearMark, Annotate, SetGate, SetReplicas",
            *_POOL,
            "action",
        )
        self.adapters = gauge(
            "adapters",
            "Adapters of a pool by state: ready (on all replicas), missing (on some), failing (a"
            " replica refuses it), removing",
            *_POOL,
            "state",
        )
        self.adapter_calls = counter(
            "adapter_calls_total",
            "Calls to workers by verb (load, unload) and outcome (ok, failed)",
            *_POOL,
            "verb",
            "outcome",
        )
        self.start_seconds = histogram(
            "replica_start_seconds",
            "Time from the decision for a replica to its first readiness",
            (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200),
            *_POOL,
        )
        skipped = counter(
            "misfits_total", "Rows in Redis that this release cannot read and skipped", "kind"
        )
        self._misfits = misfits.Exported(lambda kind, count: skipped.labels(kind).inc(count))
        self._of_pools: tuple[Gauge | Counter | Histogram, ...] = (
            self.reconciles,
            self.replicas,
            self.desired,
            self.recommended,
            self.shadow,
            self.pressure,
            self.degraded,
            self.decisions,
            self.actions,
            self.start_seconds,
            self.adapters,
            self.adapter_calls,
        )

    def called(self, verb: str, resource: str, outcome: str, seconds: float) -> None:
        """The callback for `Kube.on_call`."""
        self.api_calls.labels(verb, resource, outcome).observe(seconds)

    def follow_age(self, age_s: Callable[[], float]) -> None:
        self.cache_age.set_function(age_s)

    def forget(self, namespace: str, pool: str) -> None:
        """Remove all metrics of a deleted pool."""
        for metric in self._of_pools:
            metric.remove_by_labels({"namespace": namespace, "pool": pool})

    def forget_pools(self) -> None:
        """Remove the metrics of all pools, since another operator leads now."""
        for metric in self._of_pools:
            metric.clear()

    def render(self) -> bytes:
        self._misfits.fold()
        return generate_latest(self.registry)
