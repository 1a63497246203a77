"""What the scheduler itself costs a step: the scheduler, cache and batches of a worker, on a runner
that answers at once.

Run: python -m bench.scheduler.scheduler_loop
Times are CPU times of the scheduler's thread, so that a busy machine's other processes do not count
(but for the caches that they share). The runner's own time is taken out; encoding what goes to the
HTTP process is in. Results and machine in docs/benchmarks/scheduler-loop.md.
"""

import gc
import os
import platform
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

MODEL = Path(__file__).parents[2] / "examples/models/pando-tiny"  # its tokenizer alone is read
VOCAB = 3072
WARM = 50  # steps before the measured ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    batch: int
    context: int = 512  # tokens of each prompt
    page_size: int = 16
    policy: str = "lpm"
    sampling: dict[str, Any] = field(default_factory=dict)
    regex: str | None = None
    window: int = 0  # tokens that layers with pages of their own attend to
    # Requests that wait: for their turn, if the running ones follow each other; else without end,
    # since they are too long to fit.
    waiting: int = 0
    waiting_share: int = 0  # tokens of a cached prefix that these have in common
    new_tokens: int | None = None  # of each request, then another comes; else all run to the end


CASES = [
    *(Case(name="decode", batch=batch) for batch in (1, 8, 64, 256, 1024)),
    *(
        Case(
            name=f"decode, {context // 1024}k context, pages of {page}",
            batch=batch,
            context=context,
            page_size=page,
        )
        for context, page, batch in (
            (8192, 1, 64),
            (8192, 16, 64),
            (8192, 1, 256),
            (8192, 16, 256),
            (32_768, 16, 64),
        )
    ),
    *(
        Case(name=f"{waiting} wait, too long to fit", batch=64, waiting=waiting)
        for waiting in (100, 1000, 5000)
    ),
    *(
        Case(
            name=f"{waiting} wait that share {share // 1000}k cached tokens, {policy}",
            batch=64,
            policy=policy,
            waiting=waiting,
            waiting_share=share,
        )
        for policy in ("lpm", "hrrn", "dfs-weight")
        for waiting, share in ((128, 30_000), (5000, 1000))
    ),
    Case(name="each runs for 64 tokens, then the next one starts", batch=64, new_tokens=64),
    *(
        Case(
            name=f"the same, and 5000 wait for their turn, {policy}",
            batch=64,
            policy=policy,
            new_tokens=64,
            waiting=5000,
        )
        for policy in ("lpm", "hrrn", "fcfs")
    ),
    Case(name="frequency penalty", batch=64, sampling={"frequency_penalty": 0.5}),
    Case(
        name="frequency penalty, 8k context",
        batch=64,
        context=8192,
        sampling={"frequency_penalty": 0.5},
    ),
    *(
        Case(
            name=f"windows of 1k tokens, {context} context, pages of {page}",
            batch=batch,
            context=context,
            page_size=page,
            window=1024,
        )
        for context, page, batch in ((512, 16, 64), (8192, 16, 64), (8192, 1, 64), (8192, 16, 256))
    ),
    Case(name="grammar", batch=64, regex="([a-z]+ )+"),
]


class NullRunner:
    """Answers with tokens of its own choice, within the mask if there is one.

    Attributes:
        seconds: CPU time that it took so far
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
    """One of the tokens that a mask allows, of the higher half: the end has a low number."""
    allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    return int(allowed[rng.integers(len(allowed) // 2, len(allowed))])


class Loop:
    """The loop of the scheduler's process, without its sockets."""

    def __init__(
        self,
        case: Case,
        steps: int,
        runner: NullRunner | None = None,
        *,
        keeps_tables: bool = False,
    ) -> None:
        self._case = case
        # With the steps until all have started, nobody ends.
        starting = 2 * case.batch + case.batch * case.context // 2048
        self._new_tokens = case.new_tokens or steps + WARM + starting
        room = case.batch * (case.context + self._new_tokens + case.page_size) + case.waiting_share
        settings = WorkerSettings.model_validate(
            {
                "model": str(MODEL),
                "page_size": case.page_size,
                "schedule_policy": case.policy,
                "max_queued_requests": 10_000,
                "max_running_requests": case.batch + (case.new_tokens is None),
            }
        )
        self._runner = runner or NullRunner()
        pools = Pools(
            capacity_tokens=room,
            context_length=room,
            window=case.window,
            window_pages=room // case.page_size if case.window else 0,
            keeps_tables=keeps_tables,
        )
        grammars = GrammarCompiler(MODEL, VOCAB) if case.regex else None
        self._scheduler = make_scheduler(settings, pools, self._runner, grammars)
        # More than is ever left beside the prompts of the running ones.
        self._too_long = case.batch * (self._new_tokens + case.page_size)
        self._encoder = msgspec.msgpack.Encoder()
        self._rng = np.random.default_rng(0)
        self._prefix = self._rng.integers(
            VOCAB, size=max(case.waiting_share, case.context)
        ).tolist()
        self._sent = 0
        gc.collect()  # as the scheduler's process does once it has loaded all
        gc.freeze()

    def run(self, steps: int) -> list[float]:
        """CPU ms of each measured step."""
        case, scheduler = self._case, self._scheduler
        if case.waiting_share:
            self._receive(self._request(1, case.waiting_share, case.waiting_share))
            while not scheduler.is_idle:
                self._step()
        for index in range(case.batch):
            # Where requests follow each other, they do not all end in the same step.
            self._receive(self._request(self._new_tokens - index % (case.new_tokens or 1)))
        while scheduler.stats().running < case.batch:
            self._round()
        for _ in range(case.waiting):
            if case.new_tokens:
                self._receive(self._request(case.new_tokens))
            else:
                length = case.waiting_share + self._too_long
                self._receive(self._request(1, length, case.waiting_share))
        for _ in range(WARM):
            self._round()
        found = [self._round() for _ in range(steps)]
        stats = scheduler.stats()
        assert case.batch >= stats.running >= case.batch - 2, stats  # the others have just come
        assert stats.running + stats.waiting == case.batch + case.waiting, stats
        return found

    def _round(self) -> float:
        """A step, and a new request for each that ended in it; CPU ms."""
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
        """How many requests ended."""
        ended = 0
        for event in self._scheduler.step():
            self._encoder.encode(event)
            ended += _num_ended(event)
        return ended

    def _receive(self, request: Generate) -> int:
        return sum(map(_num_ended, self._scheduler.receive(request)))

    def _request(self, new_tokens: int, length: int | None = None, shared: int = 0) -> Generate:
        """Half of each prompt is the same for all, where they follow each other."""
        case = self._case
        length = length or case.context
        if case.new_tokens:
            shared = case.context // 2
        own = self._rng.integers(VOCAB, size=min(length - shared, case.context)).tolist()
        self._sent += 1
        return Generate(
            rid=str(self._sent),
            input_ids=[*self._prefix[:shared], *own, *([0] * (length - shared - len(own)))],
            sampling=SamplingParams(max_new_tokens=new_tokens, **case.sampling),
            grammar=grammar_of(regex=case.regex) if case.regex else None,
        )


def _num_ended(event: Event) -> int:
    if isinstance(event, Rejected):
        raise RuntimeError(event.message)
    return sum(o.finish is not None for o in event.outputs) if isinstance(event, Outputs) else 0


@click.command()
@click.option("--steps", type=click.IntRange(10), default=1000, show_default=True)
@click.option("--only", default="", help="cases whose name has this in it")
def main(steps: int, only: str) -> None:
    """Measure the scheduler's CPU time a step with the model taken out."""
    load = os.getloadavg()[0]
    click.echo(f"Python {platform.python_version()}, {steps} steps, {os.cpu_count()} cores,")
    click.echo(f"load average {load:.1f} at the start\n")
    click.echo("| | batch | ms a step, mean | p50 | p99 | longest |")
    click.echo("|---|---|---|---|---|---|")
    for case in CASES:
        if only not in case.name:
            continue
        found = Loop(case, steps).run(steps)
        p50, p99 = np.percentile(found, [50, 99])
        numbers = " | ".join(f"{ms:.2f}" for ms in (np.mean(found), p50, p99, max(found)))
        click.echo(f"| {case.name} | {case.batch} | {numbers} |")


if __name__ == "__main__":
    main()
