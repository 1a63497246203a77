"""`Crew`: processes that get the parts of the trace once, and make one run after the other."""

import asyncio
import gc
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from pando.sim.processes import Child, end, how_ended, lead_group, start
from pando.sim.runs import POLL_S, Interrupted, RunError
from pando.up.signals import EndSignals
from pando_operator.resource.pool import WorkerPool
from pando_sim.spec import FleetSpec
from pando_sim.tuning.goal import Goal
from pando_sim.tuning.parts import Parts, Stage
from pando_sim.tuning.score import Score
from pando_sim.tuning.variations import Variation
from pando_sim.tuning.watch import Bounds, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run; picklable."""

    name: str
    spec: FleetSpec
    pool: WorkerPool
    stage: Stage
    variation: Variation
    bounds: Bounds


class Crew:
    """Close it at the end; no process is left behind."""

    def __init__(
        self,
        parts: Parts,
        goal: Goal,
        size: int,
        signals: EndSignals,
        configure_logs: Callable[[], None],
    ) -> None:
        self._parts = pickle.dumps(parts)  # reading the trace again would take many times as long
        self._goal = goal
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
        child = start(_work, "tune", self._goal, self._configure_logs)
        self._children.append(child)
        child.connection.send_bytes(self._parts)
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
    goal: Goal,
    connection: "Connection[Score | str, Job]",
    configure_logs: Callable[[], None],
) -> None:
    """Entry point of a process; it ends with its parent."""
    lead_group()
    configure_logs()
    try:
        parts: Parts = pickle.loads(connection.recv_bytes())
        gc.freeze()  # the trace stays, so collections need not scan it
        while True:
            job = connection.recv()
            connection.send(
                asyncio.run(
                    run(
                        job.spec,
                        job.pool,
                        parts.of(job.stage),
                        goal,
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
