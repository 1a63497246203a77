"""Metrics of the scheduler's Stats, and of requests."""

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from pando_router.upstreams.adapters import AdapterUse
from pando_router.upstreams.engine import read_vllm_metrics
from pando_worker.server.metrics import AdaptersInUse, Metrics, VllmLabels
from pando_worker.stats import Stats
from tests.worker.server.process.worker_process import MODEL_NAME, metric
from tests.worker.server.stand_in import Trick

REQUESTS_BY_ADAPTER = "pando_worker_adapter_requests_total"

# Every field has a value of its own, so that it can be found again.
NUMBERS = {
    field: 1000 + i for i, field in enumerate(Stats.__struct_fields__) if field != "batch_sizes"
}
STATS = msgspec.convert(NUMBERS | {"batch_sizes": [5, 0, 2, 1, *[0] * 7]}, Stats)


# Names that dashboards and alerts use, and their fields.
NAMES = {
    "running_requests": "running",
    "waiting_requests": "waiting",
    "waiting_tokens": "waiting_tokens",
    "waiting_output_tokens": "waiting_output_tokens",
    "weight_bytes": "weight_bytes",
    "kv_capacity_tokens": "capacity_tokens",
    'kv_tokens{state="pinned"}': "pinned_tokens",
    'kv_tokens{state="cached"}': "cached_tokens",
    "window_kv_capacity_tokens": "window_capacity_tokens",
    "window_kv_pinned_tokens": "window_pinned_tokens",
    "window_kv_cached_tokens": "window_cached_tokens",
    "host_kv_capacity_tokens": "host_capacity_tokens",
    "host_kv_tokens": "host_tokens",
    "begun_prompt_tokens": "begun_tokens",
    "begun_context_tokens": "begun_context",
    "prefill_tokens_per_second": "prefill_tokens_per_s",
    "prefill_context_tokens_per_second": "prefill_context_per_s",
    "doubling_context_tokens": "doubling_context",
    "decode_tokens_per_second": "decode_tokens_per_s",
    "release_tokens_per_second": "release_tokens_per_s",
    "batch_size_sum": "rows_total",
    "scheduler_steps_total": "steps_total",
    "prompt_tokens_total": "prompt_tokens_total",
    "cached_prompt_tokens_total": "cached_prompt_tokens_total",
    "output_tokens_total": "output_tokens_total",
    "finished_requests_total": "finished_requests_total",
    "aborted_requests_total": "aborted_requests_total",
    "retracted_requests_total": "retracted_requests_total",
    "evicted_tokens_total": "evicted_tokens_total",
    "hot_evicted_tokens_total": "hot_evicted_tokens_total",
    "host_stored_tokens_total": "host_stored_tokens_total",
    "host_loaded_tokens_total": "host_loaded_tokens_total",
    "prompts_total": "prompts_total",
    "computed_squares_total": "computed_squares_total",
    "decoded_tokens_total": "decoded_tokens_total",
    "decode_seconds_total": "decode_seconds_total",
    "source_hits_total": "source_hits_total",
    "source_misses_total": "source_misses_total",
    "source_tokens_total": "source_tokens_total",
    "adapter_slots": "adapter_slots",
    "free_adapter_slots": "free_adapter_slots",
    "adapter_idle_seconds": "adapter_idle_s",
    "adapters_loading": "adapters_loading",
    "adapters_waiting": "adapters_waiting",
    "adapter_load_seconds": "adapter_load_s",
    "adapter_read_seconds": "adapter_read_s",
    "adapter_slot_wait_seconds": "adapter_slot_wait_s",
    "adapter_loads_total": "adapter_loads_total",
}


def samples(metrics: Metrics) -> dict[str, float]:
    """Values by name, including any labels."""
    lines = metrics.render().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_every_field_of_stats_is_exported_by_its_name() -> None:
    assert set(NAMES.values()) == NUMBERS.keys()
    exported = samples(Metrics(lambda: STATS))
    found = {name: exported[f"pando_worker_{name}"] for name in NAMES}
    assert found == {name: NUMBERS[field] for name, field in NAMES.items()}


def test_requests_by_adapter_have_a_bounded_number_of_labels() -> None:
    metrics = Metrics(lambda: None)
    for number in range(60):
        for _ in range(2):
            metrics.adapters.count(f"adapter {number}")
    found = samples(metrics)
    counts = [value for name, value in found.items() if name.startswith(REQUESTS_BY_ADAPTER)]
    assert len(counts) == 51
    assert found[f'{REQUESTS_BY_ADAPTER}{{adapter="adapter 49"}}'] == 2
    assert found[f'{REQUESTS_BY_ADAPTER}{{adapter="other"}}'] == 20


def test_what_is_neither_pinned_nor_cached_is_free() -> None:
    stats = msgspec.structs.replace(STATS, capacity_tokens=90, pinned_tokens=50, cached_tokens=10)
    assert samples(Metrics(lambda: stats))['pando_worker_kv_tokens{state="free"}'] == 30


def test_batch_sizes_are_a_histogram() -> None:
    families = text_string_to_metric_families(Metrics(lambda: STATS).render().decode())
    [sizes] = [family for family in families if family.name == "pando_worker_batch_size"]
    found = {sample.labels.get("le", sample.name): sample.value for sample in sizes.samples}
    rows = float(STATS.rows_total)
    assert found == {
        "1.0": 5,
        "2.0": 5,
        "4.0": 7,
        **{str(2.0**power): 8 for power in range(3, 10)},
        "+Inf": 8,
        "pando_worker_batch_size_count": 8,
        "pando_worker_batch_size_sum": rows,
    }


def test_nothing_is_made_up_before_the_scheduler_has_spoken() -> None:
    metrics = Metrics(lambda: None, as_vllm=VllmLabels("m", 16))
    assert b"kv_" not in metrics.render()


def test_vllms_gauges_are_the_same_numbers() -> None:
    without = msgspec.structs.replace(STATS, adapter_slots=0)
    exported = samples(Metrics(lambda: without, as_vllm=VllmLabels("m", 16)))
    found = {name: value for name, value in exported.items() if name.startswith("vllm:")}
    assert found == {
        'vllm:num_requests_running{model_name="m"}': STATS.running,
        'vllm:num_requests_waiting{model_name="m"}': STATS.waiting,
        'vllm:kv_cache_usage_perc{model_name="m"}': STATS.pinned_tokens / STATS.capacity_tokens,
        'vllm:cache_config_info{block_size="16",model_name="m",num_gpu_blocks="'
        f'{STATS.capacity_tokens // 16}"}}': 1,
    }


def test_routers_read_the_adapters_in_use_as_from_vllm() -> None:
    """A name with a comma is left out, since lists of names have commas."""
    used = AdaptersInUse(("pirate", "a,b", 'with "quotes"'), ("json",))
    stats = msgspec.structs.replace(STATS, adapter_slots=8)
    labels = VllmLabels("m", 16, lambda: used)
    rendered = Metrics(lambda: stats, as_vllm=labels).render()
    read = read_vllm_metrics(rendered)
    assert read.adapters == AdapterUse(8, ("pirate", 'with "quotes"'), ("json",))


async def test_vllms_gauges_are_there_where_asked_for(
    http: aiohttp.ClientSession, rich_http: aiohttp.ClientSession
) -> None:
    async with http.get("/metrics") as answer:
        assert "vllm:" not in await answer.text()
    async with rich_http.get("/metrics") as answer:
        text = await answer.text()
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert f'vllm:{name}{{model_name="{MODEL_NAME}"}} ' in text


async def test_a_request_counts_in_every_latency(http: aiohttp.ClientSession) -> None:
    names = ("time_to_first_token", "inter_token_latency", "queue_time", "request_duration")

    async def counts() -> list[float]:
        return [await metric(http, f"pando_worker_{name}_seconds_count") for name in names]

    before = await counts()
    body = {"text": "a b c d", "sampling_params": {"seed": Trick.SLOW, "max_new_tokens": 5, "n": 2}}
    async with http.post("/generate", json=body) as answer:
        assert answer.status == 200
    after = await counts()
    assert [now - then for now, then in zip(after, before, strict=True)] == [2, 8, 2, 2]
    assert await metric(http, "pando_worker_queue_time_seconds_sum") >= 0.5
