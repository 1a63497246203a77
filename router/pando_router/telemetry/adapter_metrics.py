"""Metrics by LoRA adapter, whose number has a bound: the most used ones have labels of their own,
and the others count together as `other`.

Which ones these are follows their use, halved now and then. An adapter that gets labels of its own
starts there at 0, so that no series ever falls.
"""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter

from pando_router.telemetry import shared_metrics

MAX_NAMED = 50
OTHER = "other"
RANK_EVERY = 1000
"""Requests between two looks at which adapters are used most, each of which halves the counts."""

LEAD = 1.5
"""How much more than the least used named adapter another one must be used to take its place."""

_Adapter = tuple[str, str]  # pool and name


@dataclass(frozen=True, slots=True)
class AdapterCounts:
    requests: Counter
    loads: Counter


class AdapterMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"pando_router_{name}", text, ("pool", "adapter"), registry=registry)

        self._requests = counter(
            "adapter_requests_total",
            f"Requests of LoRA adapters: of the {MAX_NAMED} most used ones by name, else `{OTHER}`",
        )
        self._loads = counter(
            "adapter_loads_total", "Those placed where their adapter was not in device memory"
        )
        self._named: dict[_Adapter, AdapterCounts] = {}
        self._others: dict[str, AdapterCounts] = {}  # by pool
        self._used: dict[_Adapter, float] = {}  # requests, halved at each look
        self._until_look = RANK_EVERY

    def count(self, pool: str, adapter: str, *, is_load: bool) -> None:
        """Counts an answered request."""
        key = pool, adapter
        self._used[key] = self._used.get(key, 0.0) + 1.0
        counts = self._named.get(key)
        if counts is None:
            if len(self._named) < MAX_NAMED:
                counts = self._named[key] = self._labelled(key)
            else:
                counts = self._others.get(pool)
                if counts is None:
                    counts = self._others[pool] = self._labelled((pool, OTHER))
        counts.requests.inc()
        if is_load:
            counts.loads.inc()
        self._until_look -= 1
        if not self._until_look:
            self._look()

    def _look(self) -> None:
        """Names the most used adapters. Where processes share their metrics the first ones keep
        their names, because prometheus_client cannot remove labels there."""
        self._until_look = RANK_EVERY
        if not shared_metrics.are_shared():
            rising = [key for key in self._used if key not in self._named]
            rising.sort(key=lambda key: self._used[key])
            for last in sorted(self._named, key=lambda key: self._used.get(key, 0.0)):
                if not rising or self._used[rising[-1]] <= LEAD * self._used.get(last, 0.0):
                    break
                del self._named[last]
                self._requests.remove(*last)
                self._loads.remove(*last)
                first = rising.pop()
                self._named[first] = self._labelled(first)
        # An adapter that is used no more is forgotten, so this has a bound, too.
        self._used = {key: used / 2 for key, used in self._used.items() if used >= 1}

    def _labelled(self, key: _Adapter) -> AdapterCounts:
        return AdapterCounts(self._requests.labels(*key), self._loads.labels(*key))
