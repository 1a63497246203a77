"""Metrics of the scheduler's Stats, and of requests."""

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from pando_worker.messages import Stats
from pando_worker.server.metrics import Metrics
from tests.worker.server.stand_in import Trick
from tests.worker.server.worker_process import MODEL_NAME, metric

# Every field has a value of its own, so that it can be found again.
NUMBERS = {
    field: 1000 + i for i, field in enumerate(Stats.__struct_fields__) if field != "batch_sizes"
}
STATS = msgspec.convert(NUMBERS | {"batch_sizes": [5, 0, 2, 1]}, Stats)


def values(metrics: Metrics) -> list[float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return [sample.value for family in families for sample in family.samples]


def test_every_field_of_stats_is_exported() -> None:
    exported = values(Metrics(lambda: STATS))
    assert {name for name, number in NUMBERS.items() if number not in exported} == set()


def test_batch_sizes_are_a_histogram() -> None:
    families = text_string_to_metric_families(Metrics(lambda: STATS).render().decode())
    [sizes] = [family for family in families if family.name == "pando_worker_batch_size"]
    found = {sample.labels.get("le", sample.name): sample.value for sample in sizes.samples}
    rows = float(STATS.rows_total)
    assert found == {
        "1.0": 5,
        "2.0": 5,
        "4.0": 7,
        "+Inf": 8,
        "pando_worker_batch_size_count": 8,
        "pando_worker_batch_size_sum": rows,
    }


def test_nothing_is_made_up_before_the_scheduler_has_spoken() -> None:
    metrics = Metrics(lambda: None, vllm_model_name="m")
    assert b"kv_" not in metrics.render()


async def test_vllms_gauges_are_there_where_asked_for(
    http: aiohttp.ClientSession, rich_http: aiohttp.ClientSession
) -> None:
    async with http.get("/metrics") as answer:
        assert "vllm:" not in await answer.text()
    async with rich_http.get("/metrics") as answer:
        text = await answer.text()
    label = f'{{model_name="{MODEL_NAME}"}}'
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert f"vllm:{name}{label} 0.0" in text


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
