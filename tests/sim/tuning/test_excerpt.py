"""An excerpt has the load of the whole in its proportions, and is a trace of its own."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_sim.request import Request
from pando_sim.traces.prompts import UniquePrompt
from pando_sim.tuning.excerpt import SHORTEST_S, excerpt

DAY_S = 86_400.0


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


def test_a_short_part_is_its_own_excerpt() -> None:
    whole = day(500)
    assert excerpt(whole, 500) == whole


@pytest.mark.parametrize("most", [2_000, 8_000])
def test_an_excerpt_has_quiet_and_busy_hours_in_their_proportions(most: int) -> None:
    whole = day(20_000)
    found = excerpt(whole, most)
    assert len(found) == pytest.approx(most, rel=0.15)

    def rates(requests: list[Request]) -> list[float]:
        """Quartiles of the requests in the 10 minutes of a request."""
        counts = np.bincount([int(one.at_s // SHORTEST_S) for one in requests])
        own = np.repeat(counts, counts)
        return [float(np.quantile(own, share)) for share in (0.25, 0.5, 0.75)]

    assert rates(found) == pytest.approx(rates(whole), rel=0.25)


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
    found = excerpt(whole, most)
    assert found
    assert [one.number for one in found] == list(range(len(found)))
    assert all(one.at_s <= other.at_s for one, other in pairwise(found))
    assert found[0].at_s >= 0
    old = [one.prompt.number for one in found if isinstance(one.prompt, UniquePrompt)]
    assert old == sorted(set(old)), "each at most once, in order"
    for one, number in zip(found, old, strict=True):
        waits_for = whole[number].after
        if one.after is not None:
            assert old[one.after] == waits_for
        else:
            assert waits_for is None or waits_for not in old
