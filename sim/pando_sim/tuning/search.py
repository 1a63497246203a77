"""`Search`: which candidates to try next: a sweep by hand first, then what is expected to be better
than the best so far.

It asks in generations of `GENERATION` candidates, and learns from a generation when all of it has
run. So the same seed gives the same candidates, however many processes run them.
"""

import random
from collections.abc import Sequence

from pando_sim.tuning.goal import Goal
from pando_sim.tuning.importance import importances
from pando_sim.tuning.proposing import Guesses, another, propose
from pando_sim.tuning.score import Score
from pando_sim.tuning.space import Space, Values
from pando_sim.tuning.sweep import sweep

GENERATION = 6


class Search:
    def __init__(self, space: Space, goal: Goal, seed: int) -> None:
        self._space = space
        self._goal = goal
        self._draw = random.Random(f"{seed} tune")
        self._told: list[tuple[Values, Score]] = []
        self._pending: list[Values] = []
        self._refused: list[Values] = []
        self._sweep = sweep(space, goal, self._told)
        self._next: list[Values] = []
        self._guesses: Guesses | None = None  # None until one is needed after a new score

    def ask(self) -> Values:
        if not self._next and not self._pending:
            self._next = self._new(next(self._sweep, []))
        if self._next:
            values = self._next.pop(0)
        elif self._told:
            if self._guesses is None:
                self._guesses = Guesses(self._space, self._goal, self._told)
            known = [*(values for values, _ in self._told), *self._pending, *self._refused]
            values = propose(self._space, self._guesses, known, self._pending, self._draw)
        else:  # nothing is known yet, and the sweep's first ones are fewer than a generation
            values = another(self._space, self._pending + self._refused, self._draw)
        self._pending.append(values)
        return values

    def tell(self, values: Values, score: Score | None) -> None:
        """None: the operator refuses this candidate."""
        self._pending.remove(values)
        if score is None:
            self._refused.append(values)
        else:
            self._told.append((values, score))
            self._guesses = None

    def _new(self, candidates: Sequence[Values]) -> list[Values]:
        """Those that were not asked for before; today's manifest may be the defaults."""
        known, found = [*(values for values, _ in self._told), *self._refused], list[Values]()
        for values in map(self._space.settled, candidates):
            if values not in known and values not in found:
                found.append(values)
        return found

    def importances(self) -> list[dict[str, float]]:
        """For GPU-hours and for misses, as `importances` has them."""
        return importances(self._space, self._goal, self._told)
