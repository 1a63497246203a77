"""Every metric of a worker, one registry an app; `render` is what /metrics answers.

Latencies are measured here, in the HTTP process; counts of tokens and requests are the scheduler's
own, taken from its latest `Stats` when they are asked for.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pando_worker.messages import Stats

# Seconds; a cached prompt answers in milliseconds, a long queue takes minutes.
_FIRST_TOKEN = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_NEXT_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 10)
_DURATION = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    def __init__(self, stats: Callable[[], Stats | None]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_SchedulerCollector(stats))

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pando_worker_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"pando_worker_{name}", text, registry=self.registry, buckets=buckets)

        self.time_to_first_token = histogram(
            "time_to_first_token_seconds", "From request to first token", _FIRST_TOKEN
        )
        self.inter_token_latency = histogram(
            "inter_token_latency_seconds", "Between two tokens of a request", _NEXT_TOKEN
        )
        self.request_duration = histogram(
            "request_duration_seconds", "From request to last token", _DURATION
        )
        self.http_requests = counter(
            "http_requests_total", "HTTP requests by route and status", "path", "status"
        )
        self.client_disconnects = counter(
            "client_disconnects_total", "Clients that went away before their answer was complete"
        )

    def render(self) -> bytes:
        return generate_latest(self.registry)


class _SchedulerCollector:
    """The scheduler's latest Stats as metrics; nothing until it has sent some."""

    def __init__(self, stats: Callable[[], Stats | None]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        if stats is None:
            return
        yield _gauge("running_requests", "Requests being prefilled or decoded", stats.running)
        yield _gauge("waiting_requests", "Requests in the queue", stats.waiting)
        yield _gauge("waiting_tokens", "Uncached prompt tokens in the queue", stats.waiting_tokens)
        yield _kv_tokens(stats)
        yield _gauge("kv_capacity_tokens", "Tokens that the KV pool holds", stats.capacity_tokens)
        for name, text, value in (
            ("scheduler_steps", "Batches run", stats.steps_total),
            ("prompt_tokens", "Prompt tokens, cached ones included", stats.prompt_tokens_total),
            (
                "cached_prompt_tokens",
                "Prompt tokens found in the cache",
                stats.cached_prompt_tokens_total,
            ),
            ("output_tokens", "Tokens generated", stats.output_tokens_total),
            ("finished_requests", "Requests that ran to their end", stats.finished_requests_total),
            ("aborted_requests", "Requests aborted", stats.aborted_requests_total),
            (
                "retracted_requests",
                "Running requests sent back to the queue for lack of KV space",
                stats.retracted_requests_total,
            ),
            ("evicted_tokens", "Cached tokens evicted", stats.evicted_tokens_total),
        ):
            yield CounterMetricFamily(f"pando_worker_{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pando_worker_{name}", text, value=value)


def _kv_tokens(stats: Stats) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "pando_worker_kv_tokens", "Tokens of the KV pool by state", labels=["state"]
    )
    free = stats.capacity_tokens - stats.pinned_tokens - stats.cached_tokens
    family.add_metric(["pinned"], stats.pinned_tokens)
    family.add_metric(["cached"], stats.cached_tokens)
    family.add_metric(["free"], free)
    return family
