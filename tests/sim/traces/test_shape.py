"""Traces made longer, shorter or faster, or shaped into a day."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_sim.request import Request
from pando_sim.traces import Day, Shape, Trace, open_trace, shaped
from pando_sim.traces.lasting import Lasting
from tests.sim.traces.files import equal_start, json_lines, mooncake, packed

SYSTEM = [1, 2]  # blocks that all conversations begin with
ROUNDS = 40
EVERY_MS = 30_000


def conversations() -> Iterator[dict[str, Any]]:
    """Every 30 s one begins, and continues 10 s later with a longer prompt."""
    for number in range(ROUNDS):
        first = [*SYSTEM, 100 + number]
        session = f"s{number}"
        begin = number * EVERY_MS
        yield mooncake(begin, 512 * 3, first, 50, session_id=session)
        longer = [*first, 1000 + number]
        yield mooncake(begin + 10_000, 512 * 4, longer, 50, session_id=session)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return open_trace(json_lines(tmp_path / "trace", conversations()))


def shared(one: Request, other: Request) -> int:
    """Blocks."""
    return equal_start(packed(one.prompt.keys()), packed(other.prompt.keys())) // 8


def test_speed_brings_requests_closer_and_leaves_pauses(trace: Trace) -> None:
    for slow, fast in zip(trace, shaped(trace, Shape(speed=4)), strict=True):
        assert fast.at_s == slow.at_s / 4
        assert (fast.number, fast.after, fast.pause_s) == (slow.number, slow.after, slow.pause_s)


def test_take_takes_the_first_requests(trace: Trace) -> None:
    taken, every = list(shaped(trace, Shape(take=5))), list(trace)
    assert [request.at_s for request in taken] == [request.at_s for request in every[:5]]


def test_repeated_passes_are_other_conversations_behind_the_same_system_prompt(
    trace: Trace,
) -> None:
    requests = list(shaped(trace, Shape(repeat=3)))
    count = len(requests) // 3
    assert [request.number for request in requests] == list(range(3 * count))
    passes = requests[:count], requests[count : 2 * count], requests[2 * count :]
    for first, second, third in zip(*passes, strict=True):
        assert [shared(first, second), shared(second, third), shared(first, third)] == [2, 2, 2]
        assert first.prompt.num_tokens == second.prompt.num_tokens
        assert len({first.session, second.session, third.session}) == 3
        assert (second.after is None) == (first.after is None)
    for begin, goes_on in zip(passes[1][::2], passes[1][1::2], strict=True):
        assert goes_on.after == begin.number
        assert shared(begin, goes_on) == 3


def test_passes_follow_each_other_at_the_traces_own_pace(trace: Trace) -> None:
    requests = list(shaped(trace, Shape(repeat=2, take=ROUNDS)))
    last, next_ = requests[ROUNDS - 1], requests[ROUNDS]
    assert next_.at_s - last.at_s == pytest.approx(last.at_s / (ROUNDS - 1))
    assert all(one.at_s <= other.at_s for one, other in pairwise(requests))


def test_a_cache_finds_in_each_pass_what_it_finds_in_the_first(trace: Trace) -> None:
    seen: set[bytes] = set()
    rates = []
    requests = shaped(trace, Shape(repeat=3))
    for _ in range(3):
        hits = chunks = 0
        for request in islice(requests, 2 * ROUNDS):
            keys = packed(request.prompt.keys())
            hits += sum(key in seen for key in keys)
            chunks += len(keys)
            seen.update(keys)
        rates.append(hits / chunks)
    assert rates[0] == pytest.approx(rates[1], abs=0.01)
    assert rates[1] == rates[2]


paths = st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=30)


@given(paths, st.integers(1, 60))
def test_what_lasts_is_what_is_asked_for_more_than_half_of_the_time_apart(
    asked: list[list[int]], gather: int
) -> None:
    named = [
        [int("1" + "".join(map(str, path[: end + 1]))) for end in range(len(path))]
        for path in asked
    ]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    lasting = Lasting(gather)
    for at, path in enumerate(named):
        lasting.add(np.array(path, dtype=np.uint64), float(at))
        for name in path:
            first.setdefault(name, at)
            last[name] = at
    duration = len(named) - 1
    lasting.end(float(duration))
    for path in named:
        kept = sum(last[name] - first[name] > duration / 2 for name in path)
        assert lasting.kept(np.array(path, dtype=np.uint64)) == kept


DAY = Day(hours=2.0, trough=0.25, peak=0.5, bursts=0)


def test_a_day_is_busy_at_its_peak_and_quiet_at_its_trough(trace: Trace) -> None:
    minutes = Counter(int(r.at_s // 60) for r in shaped(trace, Shape(speed=10, day=DAY)))
    at_peak = sum(minutes[minute] for minute in range(55, 65)) / 10
    at_trough = sum(minutes[minute] for minute in (*range(5), *range(115, 120))) / 10
    pace = 10 * 2 * 60_000 / EVERY_MS  # a minute, at ten times the trace's speed
    assert at_peak == pytest.approx(pace, rel=0.05)
    assert at_trough == pytest.approx(0.25 * pace, rel=0.1)
    assert max(minutes) == 119


def test_bursts_are_seeded_and_multiply_the_rate(trace: Trace) -> None:
    def count(day: Day) -> list[float]:
        return [request.at_s for request in shaped(trace, Shape(speed=50, day=day))]

    bursty = Day(hours=2.0, trough=1.0, bursts=1, burst_factor=3.0, burst_s=600.0, seed=3)
    times = count(bursty)
    assert count(bursty) == times
    (start,) = bursty.burst_starts()
    within = sum(start <= at < start + 600 for at in times) / 600
    outside = sum(at < start or at >= start + 600 for at in times) / (7200 - 600)
    assert within == pytest.approx(3 * outside, rel=0.05)
    inside = [at for at in times if start + 1 <= at < start + 599]
    gaps = {round(later - earlier, 6) for earlier, later in pairwise(inside)}
    mean_gap = (30 * (ROUNDS - 1) + 10) / (2 * ROUNDS - 1)  # between two passes
    assert gaps == {round(gap / 50 / 3, 6) for gap in (10, 20, mean_gap)}
    other = Day(hours=2.0, trough=1.0, bursts=1, burst_factor=3.0, burst_s=600.0, seed=4)
    assert other.burst_starts() != bursty.burst_starts()


def test_a_day_keeps_the_order_and_which_request_waits_for_which(trace: Trace) -> None:
    requests = list(islice(shaped(trace, Shape(day=Day())), 300))
    assert [request.number for request in requests] == list(range(300))
    assert all(one.at_s <= other.at_s for one, other in pairwise(requests))
    assert all(request.after == request.number - 1 for request in requests[1::2])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"take": 0}, "take is 0"),
        ({"repeat": 0}, "repeat is 0"),
        ({"speed": 0.0}, "speed is 0"),
        ({"repeat": 2, "day": DAY}, "repeat must be 1"),
    ],
)
def test_impossible_shapes_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shape(**wrong)


@pytest.mark.parametrize("wrong", [{"trough": 0.0}, {"trough": 1.5}, {"hours": 0}, {"bursts": -1}])
def test_impossible_days_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Day(**wrong)
