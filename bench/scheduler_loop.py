"""The scheduler's own cost per step: a worker's scheduler, cache and batches, with a runner that
answers at once.

Run: python -m bench.scheduler_loop Times are CPU times of the scheduler's thread, so that other
processes on a busy machine do not count (except through shared caches). The runner's own time is
subtracted; encoding the messages for the HTTP process is included. Results and machine are in
docs/benchmarks/scheduler-loop.md.
"""

import gc
import os
import platform
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from pando_worker.batch import ForwardBatch, Int32, Int64, StepResult
from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.messages import Event, Generate, Outputs, Rejected, SamplingParams
from pando_worker.pools import Pools
from pando_worker.scheduler.assembly import make_scheduler
from pando_worker.server.jobs.constraints import grammar_of
from pando_worker.settings import WorkerSettings

MODEL = Path(__file__).parents[1] / "examples/models/pando-tiny"  # only its tokenizer is read
VOCAB = 3072
PROMPT = 512
WARM = 50  # steps before the measured ones
GOAL_MS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    batch: int
    sampling: dict[str, Any] = field(default_factory=dict)
    regex: str | None = None
    waiting: int = 0  # requests that do not fit
    new_tokens: int | None = None  # of each, then another follows; None: run to the end


CASES = [
    *(Case(name="decode", batch=batch) for batch in (1, 8, 64, 256)),
    Case(name="100 requests wait, too long to fit", batch=64, waiting=100),
    Case(name="each runs for 64 tokens, then the next one starts", batch=64, new_tokens=64),
    Case(name="frequency penalty", batch=64, sampling={"frequency_penalty": 0.5}),
    Case(name="grammar", batch=64, regex="([a-z]+ )+"),
]


class NullRunner:
    """Answers with tokens of its own choice, within the mask if there is one.

    Attributes:
        seconds: CPU time that it has taken
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.rng = np.random.default_rng(0)

    def launch(self, batch: ForwardBatch) -> "_NullStep":
        return _NullStep(self, len(batch.sample_rows))


class _NullStep:
    def __init__(self, runner: NullRunner, rows: int) -> None:
        self._runner = runner
        self._rows = rows
        self._tokens: Int64 | None = None

    def sample(self, mask: Int32 | None) -> None:
        started = time.thread_time()
        rng = self._runner.rng
        if mask is None:
            self._tokens = rng.integers(VOCAB, size=self._rows)
        else:
            self._tokens = np.array([_allowed(words, rng) for words in mask], dtype=np.int64)
        self._runner.seconds += time.thread_time() - started

    def result(self) -> StepResult:
        assert self._tokens is not None
        return StepResult(tokens=self._tokens)


def _allowed(words: Int32, rng: np.random.Generator) -> int:
    """One of the tokens that a mask allows, from the upper half: the end token has a low number."""
    allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    return int(allowed[rng.integers(len(allowed) // 2, len(allowed))])


class Loop:
    """The loop of the scheduler's process, without its sockets."""

    def __init__(self, case: Case, steps: int) -> None:
        self._case = case
        # Enough for all steps, including those until all have started, so that none ends.
        self._new_tokens = case.new_tokens or steps + WARM + 2 * case.batch
        room = case.batch * (PROMPT + self._new_tokens + 16)
        settings = WorkerSettings(
            model=str(MODEL), max_queued_requests=10_000, max_running_requests=case.batch + 1
        )
        self._runner = NullRunner()
        pools = Pools(capacity_tokens=room, context_length=room)
        grammars = GrammarCompiler(MODEL, VOCAB) if case.regex else None
        self._scheduler = make_scheduler(settings, pools, self._runner, grammars)
        self._too_long = room - PROMPT
        self._encoder = msgspec.msgpack.Encoder()
        self._rng = random.Random(0)
        self._sent = 0
        gc.collect()  # as the scheduler's process does after loading
        gc.freeze()

    def run(self, steps: int) -> list[float]:
        """CPU ms of each measured step."""
        case, scheduler = self._case, self._scheduler
        for index in range(case.batch):
            # If requests follow each other, they must not all end in the same step.
            self._receive(self._request(self._new_tokens - index % (case.new_tokens or 1)))
        while scheduler.stats().running < case.batch:
            self._round()
        for _ in range(case.waiting):
            self._receive(self._request(1, self._too_long))
        for _ in range(WARM):
            self._round()
        found = [self._round() for _ in range(steps)]
        stats = scheduler.stats()
        assert stats.running >= case.batch - 2, stats  # the others have just arrived
        assert stats.running + stats.waiting == case.batch + case.waiting, stats
        return found

    def _round(self) -> float:
        """A step, and a new request for each that ended in it; returns CPU ms."""
        ended, ms = self._timed(self._step)
        for _ in range(ended):
            request = self._request(self._new_tokens)
            ms += self._timed(partial(self._receive, request))[1]
        return ms

    def _timed(self, call: Callable[[], int]) -> tuple[int, float]:
        started, runner = time.thread_time(), self._runner.seconds
        found = call()
        return found, 1000 * (time.thread_time() - started - (self._runner.seconds - runner))

    def _step(self) -> int:
        """Returns how many requests ended."""
        ended = 0
        for event in self._scheduler.step():
            self._encoder.encode(event)
            ended += _num_ended(event)
        return ended

    def _receive(self, request: Generate) -> int:
        return sum(map(_num_ended, self._scheduler.receive(request)))

    def _request(self, new_tokens: int, length: int = PROMPT) -> Generate:
        """If requests follow each other, half of each prompt is shared by all."""
        shared = PROMPT // 2 if self._case.new_tokens else 0
        own = self._rng.choices(range(VOCAB), k=min(length - shared, PROMPT))
        self._sent += 1
        return Generate(
            rid=str(self._sent),
            input_ids=[*range(shared), *own, *([0] * (length - shared - len(own)))],
            sampling=SamplingParams(max_new_tokens=new_tokens, **self._case.sampling),
            grammar=grammar_of(regex=self._case.regex) if self._case.regex else None,
        )


def _num_ended(event: Event) -> int:
    if isinstance(event, Rejected):
        raise RuntimeError(event.message)
    return sum(o.finish is not None for o in event.outputs) if isinstance(event, Outputs) else 0


@click.command()
@click.option("--steps", type=click.IntRange(10), default=1000, show_default=True)
def main(steps: int) -> None:
    """Measures the scheduler's CPU time per step, without the model."""
    load = os.getloadavg()[0]
    click.echo(f"Python {platform.python_version()}, {steps} steps, {os.cpu_count()} cores,")
    click.echo(f"load average {load:.1f} at the start\n")
    click.echo("| | batch | ms a step, mean | p50 | p99 | longest |")
    click.echo("|---|---|---|---|---|---|")
    for case in CASES:
        found = Loop(case, steps).run(steps)
        p50, p99 = np.percentile(found, [50, 99])
        numbers = " | ".join(f"{ms:.2f}" for ms in (np.mean(found), p50, p99, max(found)))
        click.echo(f"| {case.name} | {case.batch} | {numbers} |")
    click.echo(f"\nThe goal is {GOAL_MS} ms at batch 64.")


if __name__ == "__main__":
    main()
