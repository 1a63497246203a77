"""A contestant: an engine in its own process, which runs jobs one at a time on request.

Processes keep the contestants' environments, thread pools and memory apart. While one runs, the
others wait on a pipe.
"""

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Job:
    """Greedy continuation of all prompts at once, each by exactly `new_tokens`."""

    prompts: list[list[int]]
    new_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    seconds: float  # from receiving the prompts to the last token
    cpu_s: float  # of all its threads meanwhile, including those that spin while they wait
    tokens: list[list[int]]  # of each prompt


class Stopwatch:
    """Starts when it is created."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def outcome(self, tokens: list[list[int]]) -> Outcome:
        return Outcome(time.perf_counter() - self._wall, time.process_time() - self._cpu, tokens)


Engine = Callable[[Job], Outcome]
MakeEngine = Callable[[Path, int], Engine]  # takes the model and the number of threads


class ContestantFailedError(Exception):
    """The contestant failed; has the traceback of its process."""


class Contestant:
    """
    Args:
        make: builds the engine in the process, from the model's directory and the number of
            threads; must be importable, because the process is a fresh one
        environment: variables of the process, because torch reads some when it is imported
    """

    def __init__(
        self,
        name: str,
        make: MakeEngine,
        model: Path,
        threads: int,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        # Spawned children inherit this process's environment of that moment.
        before = dict(os.environ)
        os.environ.update(environment or {})
        self._process: SpawnProcess = context.Process(
            target=_serve, args=(theirs, make, model, threads), daemon=True
        )
        try:
            self._process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        theirs.close()

    def run(self, job: Job) -> Outcome:
        """Raises ContestantFailedError."""
        try:
            self._connection.send(job)
            outcome = self._connection.recv()
        except (EOFError, BrokenPipeError) as error:
            raise ContestantFailedError(f"{self.name} died") from error
        if isinstance(outcome, str):
            raise ContestantFailedError(f"{self.name}: {outcome}")
        assert isinstance(outcome, Outcome)
        return outcome

    def close(self) -> None:
        self._connection.close()
        self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(connection: Connection, make: MakeEngine, model: Path, threads: int) -> None:
    engine: Engine | None = None
    while True:
        try:
            job = connection.recv()
        except EOFError:  # the benchmark is over
            return
        try:
            engine = engine or make(model, threads)
            connection.send(engine(job))
        except Exception:
            connection.send(traceback.format_exc())
