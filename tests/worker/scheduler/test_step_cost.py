"""A step's work is proportional to what changed: counted in Python's calls, which no clock or busy
machine changes."""

import gc
import sys
from collections.abc import Iterator
from statistics import mean
from types import FrameType
from typing import Any

import pytest

from bench.scheduler.scheduler_loop import Case, Loop

BATCH, STEPS = 16, 32  # two pages of output for each request


class CountedLoop(Loop):
    """
    Attributes:
        counts: calls in each step, of Python and of C
    """

    counts: list[int]

    def _step(self) -> int:
        calls = 0

        def count(frame: FrameType, event: str, arg: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            return super()._step()
        finally:
            sys.setprofile(None)
            self.counts = [*getattr(self, "counts", []), calls]


def calls(**case: Any) -> float:
    """Of a steady step, on average."""
    loop = CountedLoop(Case(name="", batch=BATCH, **{"context": 256, **case}), STEPS)
    loop.run(STEPS)
    return mean(loop.counts[-STEPS:])


@pytest.fixture(autouse=True, scope="module")
def collector_as_before() -> Iterator[None]:
    """A loop takes all that there is out of its way, also what is garbage later."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"page_size": 1},
        {"window": 128},
        {"window": 128, "page_size": 1},
        {"sampling": {"frequency_penalty": 0.5}},
        {"regex": "([a-z]+ )+"},
    ],
    ids=str,
)
def test_a_step_costs_the_same_whatever_the_context(kind: dict[str, Any]) -> None:
    assert calls(context=4096, **kind) < 1.1 * calls(context=256, **kind)


@pytest.mark.parametrize("policy", ["lpm", "hrrn", "dfs-weight", "fcfs", "random", "priority"])
def test_a_step_costs_the_same_however_many_wait(policy: str) -> None:
    for waiting, share in ((300, 0), (300, 1024), (1500, 1024)):
        busy = calls(policy=policy, waiting=waiting, waiting_share=share)
        assert busy < 1.3 * calls(policy=policy)


def test_penalties_and_windows_cost_little() -> None:
    plain = calls()
    assert calls(sampling={"frequency_penalty": 0.5}) < 1.2 * plain
    assert calls(window=128) < 1.2 * plain


def test_a_row_with_a_grammar_costs_what_the_grammar_does() -> None:
    """Accepting its token, looking for forced ones, and its mask: a few calls each."""
    assert calls(regex="([a-z]+ )+") - calls() < 40 * BATCH
