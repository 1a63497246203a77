"""Counts kept in plain Python, compared with Prometheus's own counters and histograms."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from pando_router.telemetry.tallies import ByLabels, Count, Spread

BOUNDS = (0.01, 0.1, 1.0)
VALUES = st.sampled_from((*BOUNDS, 0.0, 0.05, 0.5, 2.0))
EVENTS = st.lists(st.tuples(st.sampled_from(("a", "b")), VALUES, st.booleans()), max_size=30)


def _metrics() -> tuple[CollectorRegistry, Counter, Histogram]:
    registry = CollectorRegistry()
    counter = Counter("tokens", "", ("pool",), registry=registry)
    histogram = Histogram("seconds", "", ("pool",), registry=registry, buckets=BOUNDS)
    return registry, counter, histogram


def _page(registry: CollectorRegistry) -> list[str]:
    return [
        line for line in generate_latest(registry).decode().splitlines() if "_created" not in line
    ]


@given(EVENTS)
def test_what_is_folded_now_and_then_reads_as_if_prometheus_had_counted(
    events: list[tuple[str, float, bool]],
) -> None:
    expected, counter, histogram = _metrics()
    registry, own_counter, own_histogram = _metrics()
    tokens, seconds = ByLabels(own_counter, Count), ByLabels(own_histogram, Spread)
    for pool, value, folds in events:
        counter.labels(pool).inc(value)
        histogram.labels(pool).observe(value)
        tokens[pool].inc(value)
        seconds[pool].observe(value)
        if folds:
            tokens.fold()
            seconds.fold()
    tokens.fold()
    seconds.fold()
    assert _rounded(_page(registry)) == _rounded(_page(expected))


def _rounded(lines: list[str]) -> list[object]:
    """Sums of floats depend on their order."""
    parted = (line.rpartition(" ") for line in lines)
    return [
        (name, round(float(value), 9)) if not name.startswith("#") else (name, value)
        for name, _, value in parted
    ]
