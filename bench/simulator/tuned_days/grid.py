"""The best of a grid: all combinations of some fields' values."""

import random
from collections.abc import Iterator, Sequence
from itertools import product

from bench.simulator.side_by_side import side_by_side
from bench.simulator.tuned_days.searches import GOAL, PRESSURE, Case, played
from pando_sim.tuning.goal import ALLOWED
from pando_sim.tuning.knobs import Value
from pando_sim.tuning.parts import Stage
from pando_sim.tuning.score import Score
from pando_sim.tuning.watch import Bounds

GRID: dict[str, tuple[Value, ...]] = {
    PRESSURE: (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.85),
    "scaling.target.queueWaitSeconds": (None, 0.5, 1.0, 2.0),
    "scaling.windowSeconds": (8.0, 30.0, 90.0),
    "scaling.tolerance": (0.0, 0.05, 0.1, 0.2),
    "scaling.behavior.scaleDown.stabilizationWindowSeconds": (15.0, 60.0, 120.0, 300.0, 900.0),
}
"""1,920 candidates. Two replicas at any time cost more than any of them that is good."""

AT_A_TIME = 48


def best_of(case: Case, count: int) -> tuple[Score | None, int]:
    """The cheapest of the grid that keeps the times, on the requests on which a search tries its
    candidates; and how many there are. `count` of them are drawn if that is less.

    A run ends when it misses twice what is allowed, or costs more than the best so far: neither
    kind can be the best.
    """
    every = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    drawn = random.Random(0).sample(every, min(count, len(every)))
    best: Score | None = None
    for first in range(0, len(drawn), AT_A_TIME):
        group = drawn[first : first + AT_A_TIME]
        for score in side_by_side(played, _runs(case, group, best)):
            if score.keeps(GOAL) and (best is None or score.gpu_hours < best.gpu_hours):
                best = score
    return best, len(drawn)


def _runs(
    case: Case, group: Sequence[dict[str, Value]], best: Score | None
) -> Iterator[tuple[object, ...]]:
    front = ((best.gpu_hours, 0.0),) if best else ()
    for values in group:
        yield case, values, Stage.TRIED, Bounds(front=front, most_missed=2 * ALLOWED)
