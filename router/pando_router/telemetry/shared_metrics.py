"""Metrics of several processes on one port as one page: prometheus_client's multiprocess mode.

Every process keeps its numbers in files of one folder, and any of them answers for all. The files
belong to a process's number among its siblings, not to its pid: one that is started again goes on
counting where the last one of that number stopped, and files do not pile up. What each request
counts is written there once in a second: of a process that is killed the last second is missing.
"""

import os
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

# Read by prometheus_client when it is imported: to be set before the processes start.
DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"


def join(number: int) -> None:
    """In the process of that number, before its first metric is made."""
    values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]


def leave(number: int) -> None:
    """When that process has ended: its gauges say nothing any more, its counts stay."""
    mark_process_dead(number)  # type: ignore[no-untyped-call]


def are_shared() -> bool:
    return DIRECTORY in os.environ


def render(registry: CollectorRegistry, added: Iterable[Collector]) -> bytes:
    """This process's metrics, or those of all that share theirs and `added` of this one."""
    if are_shared():
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        for collector in added:
            registry.register(collector)
    return generate_latest(registry)
