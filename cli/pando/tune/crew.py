"""`Crew`: processes that read the trace once, keep both of its parts, and make one run after the
other."""

import asyncio
import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from pando.sim.processes import Child, end, how_ended, lead_group, start
from pando.sim.runs import POLL_S, Interrupted, RunError
from pando.tune.plan import TraceSource
from pando.up.signals import EndSignals
from pando_operator.resource.pool import WorkerPool
from pando_sim.spec import FleetSpec
from pando_sim.tuning.score import Score
from pando_sim.tuning.variations import Variation
from pando_sim.tuning.watch import Bounds, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run; picklable."""

    name: str
    spec: FleetSpec
    pool: WorkerPool
    is_judged: bool  # on which part
    variation: Variation
    bounds: Bounds


class Crew:
    """Close it at the end; no process is left behind."""

    def __init__(
        self,
        source: TraceSource,
        size: int,
        signals: EndSignals,
        configure_logs: Callable[[], None],
    ) -> None:
        self._source = source
        self._size = size
        self._signals = signals
        self._configure_logs = configure_logs
        self._children: list[Child] = []

    def run(self, jobs: Sequence[Job], done: Callable[[int, Score], None]) -> None:
        """Makes all runs; `done` gets the number of each as it ends.

        Raises RunError if one fails, Interrupted after a signal.
        """
        waiting = list(enumerate(jobs))[::-1]
        free = list(self._children)
        at_work: dict[int, tuple[int, Child]] = {}  # by the connection's file
        while waiting or at_work:
            while waiting and (free or len(self._children) < self._size):
                child = free.pop() if free else self._start()
                number, job = waiting.pop()
                child.connection.send(job)
                at_work[child.connection.fileno()] = number, child
            ready = wait([child.connection for _, child in at_work.values()], timeout=POLL_S)
            if self._signals.count:
                raise Interrupted
            for number, child in list(at_work.values()):
                if child.connection in ready:
                    done(number, _receive(child, jobs[number].name))
                    del at_work[child.connection.fileno()]
                    free.append(child)

    def close(self) -> None:
        end(self._children)
        self._children = []

    def _start(self) -> Child:
        child = start(_work, "tune", self._source, self._configure_logs)
        self._children.append(child)
        return child


def _receive(child: Child, name: str) -> Score:
    try:
        message: Score | str = child.connection.recv()
    except EOFError:
        child.process.join()
        how = how_ended(child.process.exitcode)
        raise RunError(f"{name}: its process ended ({how})") from None
    if isinstance(message, str):
        raise RunError(f"{name}: {message}")
    return message


def _work(
    source: TraceSource,
    connection: "Connection[Score | str, Job]",
    configure_logs: Callable[[], None],
) -> None:
    """Entry point of a process; it ends with its parent."""
    lead_group()
    configure_logs()
    try:
        parts = source.parts()
        gc.freeze()  # the trace stays, so collections need not scan it
        while True:
            job = connection.recv()
            requests = parts.judged if job.is_judged else parts.searched
            connection.send(
                asyncio.run(
                    run(
                        job.spec,
                        job.pool,
                        requests,
                        source.goal,
                        bounds=job.bounds,
                        variation=job.variation,
                    )
                )
            )
    except (EOFError, BrokenPipeError):  # the parent has gone
        sys.exit(1)
    except Exception as error:
        connection.send(" ".join(f"{type(error).__name__}: {error}".split()))
        sys.exit(1)
