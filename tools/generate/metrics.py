"""Writes docs/metrics.md from the metrics of router, worker and operator."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec
from prometheus_client import CollectorRegistry

from pando_fleet.current import Current
from pando_operator.metrics import Metrics as OperatorMetrics
from pando_router.core.flight import Flights
from pando_router.fleet_view.replica_metrics import ReplicaMetrics
from pando_router.fleet_view.snapshot import Fleet
from pando_router.fleet_view.view import FleetView
from pando_router.telemetry.metrics import Metrics as RouterMetrics
from pando_worker.server.metrics import Metrics as WorkerMetrics
from pando_worker.stats import Stats

PAGE = Path(__file__).parents[2] / "docs/metrics.md"

INTRODUCTION = """\
# Metrics

<!-- Written by `make generate` from the metrics themselves; do not edit by hand. -->

Router, worker and operator answer `/metrics` in Prometheus's text format. Names and labels are kept
from version to version; units are in the names. A histogram `x` has the series `x_bucket` (label
`le`), `x_count` and `x_sum`.

Labels have few values: pools and replicas of the fleet, tenants of the key file, paths of the API
(`/v1/completions`; a worker's also `other`), statuses, and words of the code. Nothing of a
request's text or ids is a label.

Of several router processes on one port `/metrics` is the sum, except for the gauges of replicas,
which are those of the process that answers. [grafana/pando.json](grafana/pando.json) is a
dashboard over these names; [observability.md](observability.md) has what else can be seen.
"""


@dataclass(frozen=True, slots=True)
class Described:
    name: str  # the name of its samples, without a histogram's endings
    kind: str
    labels: tuple[str, ...]
    text: str


def router_metrics() -> list[Described]:
    metrics = RouterMetrics()

    class Nowhere:
        fleet = Fleet()

    metrics.add(ReplicaMetrics(cast(FleetView, Nowhere()), Flights(Current(0.0))))
    return _described(metrics.registry)


def worker_metrics() -> list[Described]:
    numbers = {field.name: 1 for field in msgspec.structs.fields(Stats)}
    stats = msgspec.convert(numbers | {"batch_sizes": [1] * 11}, Stats)
    return _described(WorkerMetrics(lambda: stats).registry)


def operator_metrics() -> list[Described]:
    return _described(OperatorMetrics().registry)


def _described(registry: CollectorRegistry) -> list[Described]:
    """Every metric, with or without samples."""
    found: dict[str, Described] = {}
    for collector in list(registry._collector_to_names):
        for family in collector.collect():
            # Only the creator of a family without samples knows its labels.
            labels = (
                getattr(collector, "_labelnames", None)
                or getattr(family, "_labelnames", None)
                or ()
            )
            name = family.name + ("_total" if family.type == "counter" else "")
            found[name] = Described(name, family.type, tuple(labels), family.documentation)
    return sorted(found.values(), key=lambda one: one.name)


def files() -> Iterator[tuple[Path, str]]:
    lines = [
        INTRODUCTION,
        *_section("Router", router_metrics()),
        *_section("Worker", worker_metrics()),
        "With `--compat-metrics` a worker also has vLLM's `vllm:num_requests_running`,",
        "`vllm:num_requests_waiting`, `vllm:kv_cache_usage_perc` and `vllm:cache_config_info`,",
        "labelled `model_name`, and with adapters `vllm:lora_requests_info`.",
        "",
        *_section("Operator", operator_metrics()),
    ]
    yield PAGE, "\n".join(lines)


def _section(title: str, metrics: Iterable[Described]) -> list[str]:
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} |"
        f" {one.text} |"
        for one in metrics
    ]
    return [
        f"## {title}",
        "",
        "| name | type | labels | what it is |",
        "|---|---|---|---|",
        *rows,
        "",
    ]
