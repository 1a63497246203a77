"""Runs all tasks of a plan, several at a time, each in a process; leaves no process behind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

from pando.sim.plan import Task
from pando.sim.processes import Child, end, how_ended, start
from pando.sim.work import Ended, Failed, Progress, R, Summary, work
from pando.up.signals import EndSignals

POLL_S = 0.1  # between two checks for signals

Shown = Callable[[int, Progress], None]
"""Called with the number of a task and its progress."""


class RunError(Exception):
    """A run failed; the message is one line."""


class Interrupted(Exception):  # noqa: N818 - it is no error
    """A signal ended the runs."""


@dataclass(slots=True)
class _Job:
    number: int
    child: Child


def run_all(
    tasks: Sequence[Task],
    at_a_time: int,
    signals: EndSignals,
    shown: Shown,
    summary: Summary[R],
    configure_logs: Callable[[], None],
) -> list[R]:
    """The results in the order of `tasks`, as `summary` makes them in the processes, which have
    ended when it returns or raises.

    Raises RunError for the first run that fails, Interrupted after a signal.
    """
    waiting = list(enumerate(tasks))[::-1]
    running: list[_Job] = []
    results: dict[int, R] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                number, task = waiting.pop()
                running.append(_Job(number, start(work, task.name, task, summary, configure_logs)))
            ready = wait([job.child.connection for job in running], timeout=POLL_S)
            if signals.count:
                raise Interrupted
            for job in [job for job in running if job.child.connection in ready]:
                message: Progress | Ended[R] = _receive(job, tasks[job.number])
                if isinstance(message, Progress):
                    shown(job.number, message)
                else:
                    results[job.number] = message.result
                    job.child.process.join()
                    running.remove(job)
    finally:
        end([job.child for job in running])
    return [results[number] for number in range(len(tasks))]


def _receive(job: _Job, task: Task) -> Progress | Ended[R]:
    try:
        message: Progress | Ended[R] | Failed = job.child.connection.recv()
    except EOFError:
        job.child.process.join()
        how = how_ended(job.child.process.exitcode)
        raise RunError(f"{task.name}: its process ended ({how})") from None
    if isinstance(message, Failed):
        raise RunError(f"{task.name}: {message.why}")
    return message
