"""How long steps may take, estimated from earlier ones, and that the engine announces long
waits."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from pando_worker.batch import (
    EmbeddingRows,
    ForwardBatch,
    ImageTokens,
    Int32,
    PixelValues,
    StepResult,
)
from pando_worker.engine.step_times import (
    ANNOUNCE_S,
    FIRST_S,
    SLACK,
    AnnouncingRunner,
    StepTimes,
    kind_of,
)
from pando_worker.runner.trial import trial_batch


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Model:
    """A runner whose steps take `takes_s` seconds until their result."""

    clock: Clock
    takes_s: float = 0.0

    def launch(self, batch: ForwardBatch) -> "Model":
        return self

    def sample(self, mask: Int32 | None) -> None: ...

    def result(self) -> StepResult:
        self.clock.now += self.takes_s
        return StepResult(np.zeros(1, np.int64))


@dataclass
class Engine:
    clock: Clock = field(default_factory=Clock)
    announced: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = Model(self.clock)
        self.runner = AnnouncingRunner(self.model, self.announced.append, self.clock)

    def run(self, tokens: int, seconds: float, *, cached: int = 0) -> list[float]:
        """Run one step; returns what was announced for it."""
        self.announced.clear()
        self.model.takes_s = seconds
        step = self.runner.launch(batch(tokens, cached))
        step.sample(None)
        step.result()
        return list(self.announced)


def batch(tokens: int, cached: int = 0) -> ForwardBatch:
    return trial_batch(cached=cached, extend=tokens, page_size=16)


def test_the_first_step_may_take_long_and_later_ones_what_their_kind_took() -> None:
    engine = Engine()
    assert engine.run(16, 3.0) == [FIRST_S, FIRST_S]
    assert engine.run(16, 3.0) == [SLACK * 3.0, SLACK * 3.0]


def test_short_steps_are_not_announced() -> None:
    engine = Engine()
    engine.run(16, 0.9 * ANNOUNCE_S / SLACK)
    assert engine.run(16, 0.01) == []


def test_a_larger_step_than_any_may_take_as_much_longer_as_it_is_more_work() -> None:
    engine = Engine()
    engine.run(16, 0.5)
    [allowed_s, _] = engine.run(1024, 20.0)  # its context doubles the work
    assert allowed_s == pytest.approx(
        SLACK * 0.5 * 2 ** (kind_of(batch(1024)) - kind_of(batch(16)))
    )
    assert engine.run(1024, 20.0) == [SLACK * 20.0] * 2
    assert engine.run(16, 0.5) == [SLACK * 0.5] * 2, "small ones are as fast as they were"


def test_a_long_context_is_work() -> None:
    assert kind_of(batch(1, cached=100_000)) > kind_of(batch(1, cached=10))
    assert kind_of(batch(4096, cached=100_000)) > kind_of(batch(4096)) + 3


def test_encoding_an_image_is_work() -> None:
    """Also where a chunk runs only the first of its tokens."""
    found = batch(16)
    found.images = ImageTokens(
        drop=[],
        encode=[PixelValues(b"digest", 576, {"pixel_values": np.zeros((1, 3, 336, 336))})],
        tokens=np.array([15]),
        rows=[EmbeddingRows(b"digest", 0, 1)],
    )
    assert kind_of(found) == kind_of(batch(576)) > kind_of(batch(16))


def test_a_step_that_was_stopped_amid_is_forgotten() -> None:
    times = StepTimes()
    times.add(5, 60.0)
    for _ in range(300):
        times.add(5, 0.02)
    assert times.allowed_s(5) < SLACK


def test_steps_that_overlap_are_announced_together() -> None:
    engine = Engine()
    engine.run(16, 1.0)
    engine.announced.clear()
    engine.model.takes_s = 1.0
    first, second = (engine.runner.launch(batch(16)) for _ in range(2))
    assert engine.announced == [SLACK, 2 * SLACK]
    engine.announced.clear()
    first.result()
    second.result()
    assert engine.announced == [2 * SLACK, SLACK]
