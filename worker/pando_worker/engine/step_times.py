"""How long a step may take, by the steps that were seen; and a runner that says so beforehand.

While a step runs the scheduler process says nothing. The HTTP process takes a silence for a stall,
so the engine announces each step that may take longer than such a silence. Steps are of a kind by
their size, in powers of two of the work that they are.
"""

import time
from collections import deque
from collections.abc import Callable

import numpy as np

from pando_worker.batch import ForwardBatch, Int32, ModelRunner, Step, StepResult

DOUBLING = 1024
"""Tokens that a token attends to, which are taken to be as much work as the token itself."""

SLACK = 4.0
"""Within a kind, work differs up to twofold, and other processes may have half of the cores."""

FORGETS = 0.98
"""A step counts so much less with each further one of its kind: one that took long because the
process had been stopped is forgotten after some hundred."""

FIRST_S = 300.0
"""For the very first step, which nothing can be known of."""

ANNOUNCE_S = 2.0
"""Shorter waits are well within any silence that is no stall."""


class StepTimes:
    """The longest step of each kind."""

    def __init__(self) -> None:
        self._longest: dict[int, float] = {}

    def add(self, kind: int, seconds: float) -> None:
        self._longest[kind] = max(seconds, FORGETS * self._longest.get(kind, 0.0))

    def allowed_s(self, kind: int) -> float:
        """Seconds that a step of this kind may take. Of one that was never seen, what smaller ones
        took tells, as time grows no faster than the work."""
        if kind in self._longest:
            return SLACK * self._longest[kind]
        scaled = (2.0 ** max(0, kind - seen) * took for seen, took in self._longest.items())
        return min((SLACK * seconds for seconds in scaled), default=FIRST_S)


def kind_of(batch: ForwardBatch) -> int:
    """The power of two of its work, in tokens."""
    attended = np.dot(batch.extend_lens.astype(np.float64), batch.seq_lens)
    return (len(batch.input_ids) + int(attended) // DOUBLING).bit_length()


class AnnouncingRunner:
    """A `ModelRunner` around another. Calls `announce` with the seconds for which the scheduler may
    wait, where that is long, each time before it may have to."""

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
        self._steps: deque[_AnnouncedStep] = deque()  # launched, in the order of their ends
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
