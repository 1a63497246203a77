"""A simulated worker's measured rates equal its cost model."""

import pytest

from pando_worker.stats import Stats
from tests.sim.fleet.costs import LinearCost
from tests.sim.worker.test_stride import Asked, live


def test_a_worker_finds_what_context_costs_while_it_decodes() -> None:
    lengths = (30, 1_700, 400, 90, 2_900, 700)
    asked = [
        Asked(at_s=8.0 * number, prompt=length, shared=0, output=200)
        for number, length in enumerate(lengths)
    ]
    seen = live(asked, [], None, strides=True, capacity=20_000, engine={}, page_size=1)
    look = seen.looks[-1]
    assert isinstance(look, tuple)
    stats = look[0]
    assert isinstance(stats, Stats)
    cost = LinearCost()
    assert stats.doubling_context == pytest.approx(cost.token / cost.pair, rel=0.1)
