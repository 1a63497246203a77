"""Every metric of a worker, in one registry per app; `render` makes the answer of /metrics.

Latencies are measured here, in the HTTP process. Counts of tokens and requests are read from the
scheduler's latest `Stats` at each scrape.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from time import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from pando_worker.stats import BATCH_SIZES, Stats

# Seconds; a cached prompt answers in milliseconds, a long queue takes minutes.
_FIRST_TOKEN = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_NEXT_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 10)
_DURATION = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_LENGTH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


MAX_NAMED = 50
OTHER = "other"


class AdapterRequests:
    """Counts requests by adapter, with a bounded number of labels."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._named: set[str] = set()

    def count(self, adapter: str) -> None:
        if len(self._named) < MAX_NAMED:
            self._named.add(adapter)
        self._counter.labels(adapter if adapter in self._named else OTHER).inc()


class Metrics:
    def __init__(
        self, stats: Callable[[], Stats | None], *, as_vllm: "VllmLabels | None" = None
    ) -> None:
        """With `as_vllm`, some gauges are also exported under vLLM's names, with these labels."""
        self.registry = CollectorRegistry()
        self.gaps_s = 0.0  # sum of the times between two tokens of a request; heartbeats report it
        self.gaps = 0
        self.registry.register(_SchedulerCollector(stats))
        if as_vllm is not None:
            self.registry.register(_VllmCollector(stats, as_vllm))

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pando_worker_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"pando_worker_{name}", text, registry=self.registry, buckets=buckets)

        self.volatile_lines = counter(
            "volatile_lines_total",
            "Prompts without their first line, which changes with every call",
            "form",
        )
        self.time_to_first_token = histogram(
            "time_to_first_token_seconds", "From request to first token", _FIRST_TOKEN
        )
        self.inter_token_latency = histogram(
            "inter_token_latency_seconds", "Between two tokens of a request", _NEXT_TOKEN
        )
        self.request_duration = histogram(
            "request_duration_seconds", "From request to last token, or to an embedding", _DURATION
        )
        self.queue_time = histogram(
            "queue_time_seconds",
            "From a request's arrival at the scheduler to its start",
            _DURATION,
        )
        self.request_output_tokens = histogram(
            "request_output_tokens", "Tokens generated for a choice", _LENGTH
        )
        self.http_requests = counter(
            "http_requests_total", "HTTP requests by route and status", "path", "status"
        )
        self.adapters = AdapterRequests(
            counter(
                "adapter_requests_total",
                f"Requests by LoRA adapter: the first {MAX_NAMED} by name, the rest as `{OTHER}`",
                "adapter",
            )
        )
        self.drafts = counter(
            "drafts_total",
            "Earlier answers to equal windows of sound that the engine compared with its own",
            "outcome",
        )
        self.client_disconnects = counter(
            "client_disconnects_total", "Clients that disconnected before their answer was complete"
        )
        self.engine_stalled = Gauge(
            "pando_worker_engine_stalled",
            "1 while the engine has not responded for some seconds",
            registry=self.registry,
        )

    def observe_gaps(self, elapsed_s: float, tokens: int) -> None:
        """Record `tokens` that arrived together, `elapsed_s` after the previous one; they share
        it."""
        for _ in range(tokens):
            self.inter_token_latency.observe(elapsed_s / tokens)
        self.gaps_s += elapsed_s
        self.gaps += tokens

    def render(self) -> bytes:
        return generate_latest(self.registry)


class _SchedulerCollector:
    """The scheduler's latest Stats as metrics; none before the first Stats."""

    def __init__(self, stats: Callable[[], Stats | None]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        if stats is None:
            return
        for field, name, text in _GAUGES:
            yield GaugeMetricFamily(
                f"pando_worker_{name}", text, value=float(getattr(stats, field))
            )
        yield _kv_tokens(stats)
        yield _batch_sizes(stats)
        for field, name, text in _COUNTERS:
            yield CounterMetricFamily(
                f"pando_worker_{name}", text, value=float(getattr(stats, field))
            )


@dataclass(frozen=True, slots=True)
class AdaptersInUse:
    """The names of the adapters that requests have.

    Attributes:
        running: that are in device memory
        waiting: the others
    """

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VllmLabels:
    model_name: str
    page_size: int  # tokens; vLLM's block size
    adapters: Callable[[], AdaptersInUse] = AdaptersInUse


class _VllmCollector:
    """Gauges under vLLM's names, which gateways and dashboards read."""

    def __init__(self, stats: Callable[[], Stats | None], labels: VllmLabels) -> None:
        self._stats = stats
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        if stats is None:
            return
        for name, text, value in (
            ("num_requests_running", "Requests being prefilled or decoded", stats.running),
            ("num_requests_waiting", "Requests in the queue", stats.waiting),
            (
                "kv_cache_usage_perc",
                "Share of the KV pool (of two, the fuller) that running requests hold; 1 is all",
                stats.pinned_tokens / stats.capacity_tokens,
            ),
        ):
            family = GaugeMetricFamily(f"vllm:{name}", text, labels=["model_name"])
            family.add_metric([self._labels.model_name], value)
            yield family
        pages = str(stats.capacity_tokens // self._labels.page_size)
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "The KV pool's pages and their size in tokens, as labels",
            labels=["model_name", "block_size", "num_gpu_blocks"],
        )
        info.add_metric([self._labels.model_name, str(self._labels.page_size), pages], 1.0)
        yield info
        if stats.adapter_slots:
            yield _vllms_adapters(stats.adapter_slots, self._labels.adapters())


def _vllms_adapters(slots: int, adapters: AdaptersInUse) -> Metric:
    """The value is the time, by which readers find the newest of several."""
    info = GaugeMetricFamily(
        "vllm:lora_requests_info",
        "LoRA adapters of requests, as labels",
        labels=["max_lora", "running_lora_adapters", "waiting_lora_adapters"],
    )
    names = (_listed(adapters.running), _listed(adapters.waiting))
    info.add_metric([str(slots), *names], time())
    return info


def _listed(names: tuple[str, ...]) -> str:
    """Readers split it at commas, so names that have some cannot be among them."""
    return ",".join([name for name in names if "," not in name][:MAX_NAMED])


# Field of Stats, name of the metric, help; `_kv_tokens` exports the other fields.
_GAUGES = (
    ("running", "running_requests", "Requests being prefilled or decoded"),
    ("waiting", "waiting_requests", "Requests in the queue"),
    ("waiting_tokens", "waiting_tokens", "Uncached prompt tokens in the queue"),
    ("waiting_output_tokens", "waiting_output_tokens", "Expected output of the queue"),
    ("weight_bytes", "weight_bytes", "Memory of one rank's weights"),
    ("capacity_tokens", "kv_capacity_tokens", "Tokens that the KV pool can hold"),
    ("window_capacity_tokens", "window_kv_capacity_tokens", "Tokens that window layers can hold"),
    ("window_pinned_tokens", "window_kv_pinned_tokens", "Window tokens of running requests"),
    ("window_cached_tokens", "window_kv_cached_tokens", "Window tokens of cached prefixes"),
    ("host_capacity_tokens", "host_kv_capacity_tokens", "Tokens that the host tier can hold"),
    ("host_tokens", "host_kv_tokens", "Cached tokens on the host, also in the pool or not"),
    ("begun_tokens", "begun_prompt_tokens", "Computed of prompts that are not yet answered"),
    ("begun_context", "begun_context_tokens", "Their summed context lengths"),
    ("prefill_tokens_per_s", "prefill_tokens_per_second", "While prefilling, smoothed"),
    ("prefill_context_per_s", "prefill_context_tokens_per_second", "Their summed context lengths"),
    ("doubling_context", "doubling_context_tokens", "Context that doubles a prompt token's time"),
    ("decode_tokens_per_s", "decode_tokens_per_second", "Of all running requests, smoothed"),
    ("release_tokens_per_s", "release_tokens_per_second", "KV tokens unpinned, smoothed"),
    ("adapter_slots", "adapter_slots", "LoRA adapters that device memory can hold"),
    ("free_adapter_slots", "free_adapter_slots", "Of these, not held by a request"),
    ("adapter_idle_s", "adapter_idle_seconds", "Since the use of the one that gives way next"),
    ("adapters_loading", "adapters_loading", "Adapters on their way into device memory"),
    ("adapters_waiting", "adapters_waiting", "Adapters that requests wait for, without a slot"),
    ("adapter_load_s", "adapter_load_seconds", "Of a load from host to device memory, smoothed"),
    ("adapter_read_s", "adapter_read_seconds", "What reading from disk adds to it, smoothed"),
    ("adapter_slot_wait_s", "adapter_slot_wait_seconds", "For a slot while all are held, smoothed"),
)
_COUNTERS = (
    ("steps_total", "scheduler_steps", "Batches run"),
    ("prompts_total", "prompts", "Prompts of the prompt tokens"),
    ("prompt_tokens_total", "prompt_tokens", "Prompt tokens, cached ones included"),
    ("cached_prompt_tokens_total", "cached_prompt_tokens", "Prompt tokens found in the cache"),
    (
        "computed_squares_total",
        "computed_squares",
        "Squares of the prompts' tokens that were not found in the cache",
    ),
    ("output_tokens_total", "output_tokens", "Tokens generated"),
    ("decoded_tokens_total", "decoded_tokens", "Those but the first of each request"),
    ("decode_seconds_total", "decode_seconds", "Duration of the step of each of these, summed"),
    ("finished_requests_total", "finished_requests", "Requests that ran to their end"),
    ("aborted_requests_total", "aborted_requests", "Requests aborted"),
    (
        "retracted_requests_total",
        "retracted_requests",
        "Running requests sent back to the queue for lack of KV space",
    ),
    ("evicted_tokens_total", "evicted_tokens", "Cached tokens evicted"),
    ("hot_evicted_tokens_total", "hot_evicted_tokens", "Evicted and soon requested again"),
    ("host_stored_tokens_total", "host_stored_tokens", "Cached tokens copied to the host"),
    ("host_loaded_tokens_total", "host_loaded_tokens", "Cached tokens copied back from the host"),
    ("source_hits_total", "source_hits", "Windows of sound, or texts, that were found encoded"),
    ("source_misses_total", "source_misses", "Windows of sound, or texts, that had to be encoded"),
    (
        "source_tokens_total",
        "source_tokens",
        "Positions of the windows, or texts, that were encoded",
    ),
    ("adapter_loads_total", "adapter_loads", "LoRA adapters loaded into device memory"),
)


def _kv_tokens(stats: Stats) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "pando_worker_kv_tokens", "Tokens of the KV pool by state", labels=["state"]
    )
    free = stats.capacity_tokens - stats.pinned_tokens - stats.cached_tokens
    family.add_metric(["pinned"], stats.pinned_tokens)
    family.add_metric(["cached"], stats.cached_tokens)
    family.add_metric(["free"], free)
    return family


def _batch_sizes(stats: Stats) -> HistogramMetricFamily:
    bounds = [*(str(float(size)) for size in BATCH_SIZES), "+Inf"]
    buckets = list(zip(bounds, accumulate(stats.batch_sizes), strict=True))
    return HistogramMetricFamily(
        "pando_worker_batch_size",
        "Requests in a batch",
        buckets=buckets,
        sum_value=stats.rows_total,
    )
