"""Metrics by adapter: few labels, whatever the number of adapters, and no series that falls."""

import random
from collections import Counter

from prometheus_client import CollectorRegistry

from pando_router.telemetry.adapter_metrics import MAX_NAMED, OTHER, AdapterMetrics

TOTAL = "pando_router_adapter_requests_total"


def read(registry: CollectorRegistry) -> dict[str, float]:
    return {
        sample.labels["adapter"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == TOTAL
    }


def test_of_many_adapters_the_most_used_have_names_and_nothing_is_lost() -> None:
    registry, draw = CollectorRegistry(), random.Random(1)
    metrics = AdapterMetrics(registry)
    names = [f"n{n}" for n in range(500)]
    draw.shuffle(names)
    weights = [1 / (rank + 1) for rank in range(len(names))]
    drawn = draw.choices(names, weights, k=50_000)
    before: dict[str, float] = {}
    removed = 0.0
    for number, name in enumerate(drawn):
        metrics.count("p", name, is_load=False)
        if number % 997 == 0:
            now = read(registry)
            assert all(value >= before[name] for name, value in now.items() if name in before)
            removed += sum(value for name, value in before.items() if name not in now)
            before = now
    found = read(registry)
    assert len(found) == MAX_NAMED + 1
    most = [name for name, _ in Counter(drawn).most_common(20)]
    assert set(most) <= found.keys()
    assert found[OTHER] > 0 and sum(found.values()) <= len(drawn) - removed


def test_what_becomes_popular_later_gets_a_name_too() -> None:
    registry = CollectorRegistry()
    metrics = AdapterMetrics(registry)
    for n in range(60):
        for _ in range(100):
            metrics.count("p", f"old{n}", is_load=True)
    assert "new" not in read(registry)
    for _ in range(3000):
        metrics.count("p", "new", is_load=False)
    found = read(registry)
    assert "new" in found and len(found) == MAX_NAMED + 1


def test_few_adapters_are_all_named() -> None:
    registry = CollectorRegistry()
    metrics = AdapterMetrics(registry)
    for n in range(MAX_NAMED):
        metrics.count("p", f"n{n}", is_load=False)
    assert OTHER not in read(registry) and len(read(registry)) == MAX_NAMED
