"""An excerpt estimates what the whole has, bursts included, and is a trace of its own."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_sim.day_clock import DayClock
from pando_sim.request import Request
from pando_sim.traces.prompts import UniquePrompt
from pando_sim.tuning.excerpt import SHORTEST_S, excerpt
from pando_sim.tuning.variations import Variation, varied

DAY_S = 86_400.0
BURST_S = 300.0


def day(count: int) -> list[Request]:
    """A day whose rate rises and falls once; each third request waits for the one before."""
    even = (np.arange(count) + 0.5) / count
    shares = np.linspace(0, 1, 10_001)
    passed = shares - 0.8 * np.sin(2 * math.pi * shares) / (2 * math.pi)
    times = DAY_S * np.interp(even, passed, shares)
    return [
        Request(
            number=number,
            at_s=float(at_s),
            prompt=UniquePrompt(number, 10),
            output_tokens=5,
            after=number - 1 if number % 3 == 2 else None,
        )
        for number, at_s in enumerate(times)
    ]


def bursty(seed: int, bursts: int, factor: int, count: int = 20_000) -> list[Request]:
    """The same day with bursts of five minutes at any time."""
    rng = np.random.default_rng(seed)
    calm = day(count)
    starts = rng.uniform(0, DAY_S - BURST_S, bursts)
    more = [one for one in calm if any(0 <= one.at_s - start < BURST_S for start in starts)]
    every = sorted(calm + more * (factor - 1), key=lambda one: one.at_s)
    return [replace(one, number=number, after=None) for number, one in enumerate(every)]


WHOLE = bursty(seed=0, bursts=12, factor=4)


def test_a_short_part_is_its_own_excerpt() -> None:
    whole = day(500)
    found = excerpt(whole, 500)
    assert found.requests == whole
    assert found.part_s == whole[-1].at_s
    assert found.request_weights().tolist() == [1.0] * 500


@pytest.mark.parametrize("most", [2_000, 4_000, 8_000])
def test_a_day_is_as_busy_as_its_excerpt_says(most: int) -> None:
    """The mean, over requests, of how many there are in the 10 minutes of each."""
    whole = day(20_000)
    found = excerpt(whole, most)
    assert 0.6 * most < len(found.requests) <= most
    places = np.array([int(one.at_s // SHORTEST_S) for one in whole])
    own = np.bincount(places)[places]
    numbers = [one.prompt.number for one in found.requests if isinstance(one.prompt, UniquePrompt)]
    estimated = np.average(own[numbers], weights=found.request_weights())
    assert estimated == pytest.approx(own.mean(), rel=0.1)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 10**6),
    bursts=st.integers(0, 12),
    factor=st.integers(2, 6),
    most=st.integers(500, 12_000),
)
def test_weights_are_of_the_whole_part(seed: int, bursts: int, factor: int, most: int) -> None:
    whole = bursty(seed, bursts, factor)
    found = excerpt(whole, most)
    assert found.part_s == pytest.approx(whole[-1].at_s)
    assert found.request_weights().sum() == pytest.approx(len(whole), rel=0.1)


@given(seed=st.integers(0, 10**6), most=st.integers(500, 8_000))
def test_an_excerpt_of_a_day_with_a_burst_has_it(seed: int, most: int) -> None:
    """Also if there is only one. Edges are whole minutes, so seconds of it may be cut."""
    rng = np.random.default_rng(seed)
    start_s = rng.uniform(DAY_S / 3, DAY_S * 2 / 3)
    calm = day(20_000)
    burst = [one for one in calm if 0 <= one.at_s - start_s < BURST_S]
    whole = sorted(calm + burst * 4, key=lambda one: one.at_s)
    whole = [replace(one, number=number, after=None) for number, one in enumerate(whole)]
    found = excerpt(whole, most)
    names = [one.prompt.number for one in found.requests if isinstance(one.prompt, UniquePrompt)]
    own = {one.number for one in burst}
    weights = [
        weight
        for name, weight in zip(names, found.request_weights(), strict=True)
        if name in own and weight
    ]
    assert len(weights) > 0.9 * 5 * len(burst)
    assert max(weights) < 2, "it stands for little more than itself"


@pytest.mark.parametrize("most", [2_000, 4_000, 8_000])
def test_no_stretch_gets_the_replicas_of_a_busier_time(most: int) -> None:
    """They would count for all of its stratum, as pools shrink minutes later."""
    at_s = {one.prompt.number: one.at_s for one in WHOLE if isinstance(one.prompt, UniquePrompt)}
    minutes = np.bincount([int(one.at_s // 60) for one in WHOLE])
    found = excerpt(WHOLE, most)
    for (begin_s, end_s), weight in zip(pairwise(found.edges_s), found.weights, strict=True):
        played = [
            int(at_s[one.prompt.number] // 60)
            for one in found.requests
            if begin_s <= one.at_s < end_s and isinstance(one.prompt, UniquePrompt)
        ]
        if weight:
            before = minutes[max(0, played[0] - 10) : played[0]].max(initial=0)
            assert before <= minutes[played[0] : played[-1] + 1].max()


@pytest.mark.parametrize("most", [2_000, 4_000, 8_000])
def test_each_stretch_is_busier_than_the_one_before(most: int) -> None:
    """So a pool never has replicas of the stretch before."""
    found = excerpt(WHOLE, most)
    times = np.array([one.at_s for one in found.requests])
    busiest = [
        np.bincount(((times[(times >= begin_s) & (times < end_s)] - begin_s) // 60).astype(int))
        for (begin_s, end_s), weight in zip(pairwise(found.edges_s), found.weights, strict=True)
        if weight
    ]
    most_a_minute = [int(one.max()) for one in busiest]
    assert most_a_minute == sorted(most_a_minute)


@pytest.mark.parametrize(("most", "speed"), [(2_000, 1.0), (8_000, 1.2), (10**9, 0.8)])
def test_each_request_is_played_at_its_own_hour(most: int, speed: float) -> None:
    """Also where arrivals come faster, and in a part that does not begin with the trace."""
    trace, part_s = DayClock(unix_s=(1.79e9,)), DAY_S
    found = excerpt(WHOLE, most, part_s)
    faster = varied(found, Variation(name="other arrivals", speed=speed))
    clock = faster.clock(trace, speed)
    hours = {one.prompt: one.at_s for one in WHOLE}
    for one in faster.requests:
        at_s = clock.unix_at(one.at_s)
        assert at_s - 1.79e9 - part_s == pytest.approx(hours[one.prompt], abs=1e-3)


@given(moments=st.lists(st.floats(0.0, 2 * DAY_S), min_size=1), most=st.integers(500, 12_000))
def test_passed_seconds_never_fall(moments: list[float], most: int) -> None:
    found = excerpt(WHOLE, most)
    passed = [found.seconds_until(at_s) for at_s in sorted(moments)]
    assert passed == sorted(passed)
    assert passed[-1] <= found.part_s
    assert found.seconds_until(found.edges_s[-1]) == found.part_s


@given(count=st.integers(1, 300), most=st.integers(1, 300), seconds=st.floats(1.0, 1e5))
def test_an_excerpt_is_a_trace(count: int, most: int, seconds: float) -> None:
    whole = [
        Request(
            number=number,
            at_s=seconds * (number / count) ** 2,
            prompt=UniquePrompt(number, 10),
            output_tokens=5,
            after=number - 2 if number % 5 == 4 else None,
        )
        for number in range(count)
    ]
    cut = excerpt(whole, most)
    found = cut.requests
    assert found
    assert [one.number for one in found] == list(range(len(found)))
    assert all(one.at_s <= other.at_s for one, other in pairwise(found))
    assert found[0].at_s >= 0
    old = [one.prompt.number for one in found if isinstance(one.prompt, UniquePrompt)]
    assert len(old) == len(set(old)), "each at most once"
    earlier = sum(after < before for before, after in pairwise(old))
    assert earlier < sum(weight > 0 for weight in cut.weights), "in order within a stretch"
    for one, number in zip(found, old, strict=True):
        waits_for = whole[number].after
        if one.after is not None:
            assert old[one.after] == waits_for
            assert one.after < one.number
        else:
            assert waits_for is None or waits_for not in old[: one.number]
