"""Joins the metrics of several processes on one port: prometheus_client's multiprocess mode.

Every process keeps its numbers in files of one folder, and any of them answers for all. The files
belong to a process's number among its siblings, not to its pid, so a restarted process continues
the counts of its predecessor, and files do not pile up. Tallies are written there once a second; a
killed process loses its last second.
"""

import os
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

# prometheus_client reads this when it is imported, so set it before the processes start.
DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"


def join(number: int) -> None:
    """Call it in the process of that number, before its first metric is created."""
    values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]


def leave(number: int) -> None:
    """Call it when that process has ended: its gauges are removed, its counts stay."""
    mark_process_dead(number)  # type: ignore[no-untyped-call]


def are_shared() -> bool:
    return DIRECTORY in os.environ


def render(registry: CollectorRegistry, added: Iterable[Collector]) -> bytes:
    """This process's metrics, or those of all processes that share theirs; and `added`."""
    if are_shared():
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        for collector in added:
            registry.register(collector)
    return generate_latest(registry)
