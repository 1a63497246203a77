"""Sessions are counted in bounded memory."""

from hashlib import blake2b

import pytest

from pando_sim.traces.distinct import MOST, Distinct


def name(number: int) -> str:
    return blake2b(str(number).encode(), digest_size=6).hexdigest()


@pytest.mark.parametrize("count", [0, 1, 4000, MOST])
def test_few_names_are_counted_exactly(count: int) -> None:
    distinct = Distinct()
    for number in [*range(count), *range(count)]:
        distinct.add(name(number))
    assert (distinct.count, distinct.is_exact) == (count, True)


def test_the_number_of_many_names_is_estimated() -> None:
    distinct = Distinct()
    for number in [*range(50_000), *range(0, 50_000, 3)]:
        distinct.add(name(number))
    assert not distinct.is_exact
    assert distinct.count == pytest.approx(50_000, rel=0.05)
