"""Estimates how long a step may take from earlier steps, and announces long ones beforehand.

While a step runs, the scheduler process sends nothing, and the HTTP process treats silence as a
stall. So the engine announces each step that may take longer than that. Steps are grouped into
kinds by their amount of work, in powers of two.
"""

import time
from collections import deque
from collections.abc import Callable

import numpy as np

from pando_worker.batch import ForwardBatch, Int32, ModelRunner, Step, StepResult

DOUBLING = 1024
"""Attending to this many tokens is assumed to be as much work as one token itself."""

SLACK = 4.0
"""Within a kind, work differs up to twofold, and other processes may use half of the cores."""

FORGETS = 0.98
"""A step's weight falls by this factor with each later one of its kind: one that took long because
the process had been stopped has no weight after some hundred."""

FIRST_S = 300.0
"""For the very first step, for which there is no measurement."""

ANNOUNCE_S = 2.0
"""Shorter waits are never mistaken for a stall, so they are not announced."""


class StepTimes:
    """The longest step of each kind."""

    def __init__(self) -> None:
        self._longest: dict[int, float] = {}

    def add(self, kind: int, seconds: float) -> None:
        self._longest[kind] = max(seconds, FORGETS * self._longest.get(kind, 0.0))

    def allowed_s(self, kind: int) -> float:
        """Seconds that a step of this kind may take. For a kind that has not occurred yet, this is
        extrapolated from smaller ones, as time grows no faster than the work."""
        if kind in self._longest:
            return SLACK * self._longest[kind]
        scaled = (2.0 ** max(0, kind - seen) * took for seen, took in self._longest.items())
        return min((SLACK * seconds for seconds in scaled), default=FIRST_S)


def kind_of(batch: ForwardBatch) -> int:
    """The power of two of the batch's work, in tokens. Those of images that are encoded count
    again, although a vision tower is mostly smaller than its decoder; positions of sources count as
    well."""
    attended = np.dot(batch.extend_lens.astype(np.float64), batch.seq_lens)
    encoded = sum(image.tokens for image in batch.images.encode) if batch.images else 0
    encoded += batch.sources.num_positions if batch.sources else 0
    return (len(batch.input_ids) + encoded + int(attended) // DOUBLING).bit_length()


class AnnouncingRunner:
    """A `ModelRunner` around another. Before each wait that may be long, calls `announce` with the
    seconds that the scheduler may wait."""

    def __init__(
        self,
        runner: ModelRunner,
        announce: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._announce = announce
        self._clock = clock
        self._times = StepTimes()
        self._steps: deque[_AnnouncedStep] = deque()  # in flight, in the order of their ends
        self._last_end = 0.0

    def launch(self, batch: ForwardBatch) -> "_AnnouncedStep":
        kind = kind_of(batch)
        step = _AnnouncedStep(self, kind, self._times.allowed_s(kind), self._clock())
        self._steps.append(step)
        self.before_a_wait()
        step.inner = self._runner.launch(batch)
        return step

    def before_a_wait(self) -> None:
        allowed_s = sum(step.allowed_s for step in self._steps)
        if allowed_s >= ANNOUNCE_S:
            self._announce(allowed_s)

    def ended(self, step: "_AnnouncedStep") -> None:
        now = self._clock()
        self._steps.remove(step)
        self._times.add(step.kind, now - max(step.launched, self._last_end))
        self._last_end = now


class _AnnouncedStep:
    inner: Step

    def __init__(
        self, runner: AnnouncingRunner, kind: int, allowed_s: float, launched: float
    ) -> None:
        self._runner = runner
        self.kind = kind
        self.allowed_s = allowed_s
        self.launched = launched

    def sample(self, mask: Int32 | None) -> None:
        self.inner.sample(mask)

    def result(self) -> StepResult:
        self._runner.before_a_wait()
        try:
            return self.inner.result()
        finally:
            self._runner.ended(self)
