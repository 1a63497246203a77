"""The share of `max_new_tokens` that running requests are expected to produce.

Most requests stop much earlier. So the ratio decays slowly while there is room, which lets more
requests run at once; a retraction shows that it has fallen too far, and resets it from what the
requests have really produced (SGLang's scheme).
"""

from collections.abc import Sequence
from copy import copy

from pando_worker.scheduler.req import Req

FLOOR = 0.14  # of the initial ratio
DECAY_STEPS = 600  # from the initial ratio to its floor
# At most this many of a request's `max_new_tokens` count. If a client sends none, it is the rest of
# the context, and a few such requests would reserve the whole pool.
MOST_EXPECTED = 4096
STEPS_AHEAD = 20  # that the remaining requests should run before the next retraction


def still_allowed(req: Req) -> int:
    """Tokens that a request may still produce, capped by MOST_EXPECTED; the ratio applies to it."""
    return min(req.remaining_tokens, MOST_EXPECTED)


class NewTokenRatio:
    def __init__(self, initial: float) -> None:
        self._initial = initial
        self._floor = initial * FLOOR
        self.value = initial

    def decay(self, steps: int = 1) -> None:
        """Decode steps had room for all their tokens: lower the ratio."""
        fall = (self._initial - self._floor) / DECAY_STEPS
        value, floor = self.value, self._floor
        for _ in range(steps):
            value -= fall
            if value < floor:
                value = floor
                break
        self.value = value

    def ahead(self, steps: int) -> list[float]:
        """The ratio after each of the next `steps` calls of `decay`."""
        later, values = copy(self), list[float]()
        for _ in range(steps):
            later.decay()
            values.append(later.value)
        return values

    def recover(self, left: Sequence[Req]) -> None:
        """Reset the ratio after a retraction that left these requests running."""
        produced = sum(req.num_output + STEPS_AHEAD for req in left)
        allowed = sum(req.num_output + still_allowed(req) for req in left)
        self.value = min(1.0, max(self.value, produced / max(1, allowed)))

    def reset(self) -> None:
        """Return to the initial ratio once nothing runs: the next requests may differ."""
        self.value = self._initial
