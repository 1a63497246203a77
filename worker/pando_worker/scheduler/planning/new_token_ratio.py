"""How much of their `max_new_tokens` running requests are expected to produce.

Most stop long before. So the share falls slowly while nothing goes wrong, and more requests run at
once; a retraction shows that it fell too far, and sets it anew from what the requests really did
(SGLang's scheme).
"""

from collections.abc import Sequence

from pando_worker.scheduler.req import Req

FLOOR = 0.14  # of the initial ratio
DECAY_STEPS = 600  # from the initial ratio to its floor
# Of a request's `max_new_tokens`, so many count. Where a client names none they are what the
# context leaves, and a few such requests would be given the whole pool.
MOST_EXPECTED = 4096
STEPS_AHEAD = 20  # that those left after a retraction are to run without another


def still_allowed(req: Req) -> int:
    """Tokens that a request may still produce, as far as they count: the ratio is a share of it."""
    return min(req.remaining_tokens, MOST_EXPECTED)


class NewTokenRatio:
    def __init__(self, initial: float) -> None:
        self._initial = initial
        self._floor = initial * FLOOR
        self.value = initial

    def decay(self, steps: int = 1) -> None:
        """Decode steps found room for all their tokens."""
        fall = (self._initial - self._floor) / DECAY_STEPS
        value, floor = self.value, self._floor
        for _ in range(steps):
            value -= fall
            if value < floor:
                value = floor
                break
        self.value = value

    def recover(self, left: Sequence[Req]) -> None:
        """A retraction left these running."""
        produced = sum(req.num_output + STEPS_AHEAD for req in left)
        allowed = sum(req.num_output + still_allowed(req) for req in left)
        self.value = min(1.0, max(self.value, produced / max(1, allowed)))

    def reset(self) -> None:
        """Nothing runs any more: the next requests may be of another kind."""
        self.value = self._initial
