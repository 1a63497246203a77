"""All runs of a plan, several at a time, each in a process; ended together, however it comes."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from pando.sim.plan import Task
from pando.sim.work import Failed, Progress, Told, work
from pando.up.signals import EndSignals
from pando_sim.report import Digest

LOOK_S = 0.1  # between two looks at the signals
END_S = 5.0  # for a process to end itself

Shown = Callable[[int, Progress], None]
"""Is told of each task's progress, by its number."""


class RunError(Exception):
    """A run did not come to its end; the message is one line."""


class Interrupted(Exception):  # noqa: N818 - nothing is wrong
    """A signal asked for the end."""


@dataclass(slots=True)
class _Job:
    number: int
    process: SpawnProcess
    hears: "Connection[None, Told]"


def run_all(
    tasks: Sequence[Task],
    at_a_time: int,
    signals: EndSignals,
    shown: Shown,
    configure_logs: Callable[[], None],
) -> list[Digest]:
    """In the order of `tasks`. No process is left when it returns or raises.

    Raises RunError with the first run that fails, Interrupted after a signal.
    """
    waiting = list(enumerate(tasks))[::-1]
    running: list[_Job] = []
    results: dict[int, Digest] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                running.append(_start(*waiting.pop(), configure_logs))
            ready = wait([job.hears for job in running], timeout=LOOK_S)
            if signals.count:
                raise Interrupted
            for job in [job for job in running if job.hears in ready]:
                told = _hear(job, tasks[job.number])
                if isinstance(told, Progress):
                    shown(job.number, told)
                else:
                    results[job.number] = told
                    job.process.join()
                    running.remove(job)
    finally:
        _end(running)
    return [results[number] for number in range(len(tasks))]


def _start(number: int, task: Task, configure_logs: Callable[[], None]) -> _Job:
    context = multiprocessing.get_context("spawn")
    hears, tells = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(task, tells, configure_logs), name=task.name)
    process.start()
    tells.close()  # so that its end is heard when the process has ended
    return _Job(number, process, hears)


def _hear(job: _Job, task: Task) -> Progress | Digest:
    try:
        told = job.hears.recv()
    except EOFError:
        job.process.join()
        raise RunError(f"{task.name}: its process ended ({_how(job.process.exitcode)})") from None
    if isinstance(told, Failed):
        raise RunError(f"{task.name}: {told.why}")
    return told


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}; the kernel does so where memory is short"
    return f"exit code {code}"


def _end(running: Sequence[_Job]) -> None:
    """Asks all to end, and kills who does not, each with its group."""
    for job in running:
        job.process.terminate()
    deadline = time.monotonic() + END_S
    for job in running:
        job.process.join(max(0.0, deadline - time.monotonic()))
        _kill(job)  # also what the process may have left behind
        job.process.join()
        job.hears.close()


def _kill(job: _Job) -> None:
    pid = job.process.pid
    assert pid is not None, "it was started"
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # no group yet, or none any more
        with suppress(ProcessLookupError):
            if job.process.is_alive():
                os.kill(pid, signal.SIGKILL)
