"""Runs all tasks of a plan, several at a time, each in a process; leaves no process behind."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.resource_tracker import ensure_running

from pando.sim.plan import Task
from pando.sim.work import Failed, Message, Progress, work
from pando.up.signals import EndSignals
from pando_sim.report import Digest

POLL_S = 0.1  # between two checks for signals
END_S = 5.0  # for a process to end itself

Shown = Callable[[int, Progress], None]
"""Called with the number of a task and its progress."""


class RunError(Exception):
    """A run failed; the message is one line."""


class Interrupted(Exception):  # noqa: N818 - it is no error
    """A signal ended the runs."""


@dataclass(slots=True)
class _Job:
    number: int
    process: SpawnProcess
    receiver: "Connection[None, Message]"


def run_all(
    tasks: Sequence[Task],
    at_a_time: int,
    signals: EndSignals,
    shown: Shown,
    configure_logs: Callable[[], None],
) -> list[Digest]:
    """The results in the order of `tasks`. All processes have ended when it returns or raises.

    Raises RunError for the first run that fails, Interrupted after a signal.
    """
    waiting = list(enumerate(tasks))[::-1]
    running: list[_Job] = []
    results: dict[int, Digest] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                running.append(_start(*waiting.pop(), configure_logs))
            ready = wait([job.receiver for job in running], timeout=POLL_S)
            if signals.count:
                raise Interrupted
            for job in [job for job in running if job.receiver in ready]:
                message = _receive(job, tasks[job.number])
                if isinstance(message, Progress):
                    shown(job.number, message)
                else:
                    results[job.number] = message
                    job.process.join()
                    running.remove(job)
    finally:
        _end(running)
    return [results[number] for number in range(len(tasks))]


def _start(number: int, task: Task, configure_logs: Callable[[], None]) -> _Job:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(task, sender, configure_logs), name=task.name)
    # A terminal's Ctrl-C reaches the process until it has a group of its own. So the process begins
    # with the signal blocked, until `work` ignores it. Starting the tracker would unblock it.
    ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sender.close()  # so that the receiver sees the end when the process has ended
    return _Job(number, process, receiver)


def _receive(job: _Job, task: Task) -> Progress | Digest:
    try:
        message = job.receiver.recv()
    except EOFError:
        job.process.join()
        raise RunError(f"{task.name}: its process ended ({_how(job.process.exitcode)})") from None
    if isinstance(message, Failed):
        raise RunError(f"{task.name}: {message.why}")
    return message


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}; the kernel does that if memory is short"
    return f"exit code {code}"


def _end(running: Sequence[_Job]) -> None:
    """Terminates all processes, and kills those that do not end, each with its group."""
    for job in running:
        job.process.terminate()
    deadline = time.monotonic() + END_S
    for job in running:
        job.process.join(max(0.0, deadline - time.monotonic()))
        _kill(job)  # also processes that it may have left behind
        job.process.join()
        job.receiver.close()


def _kill(job: _Job) -> None:
    pid = job.process.pid
    assert pid is not None, "it was started"
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # the group does not exist yet, or no longer
        with suppress(ProcessLookupError):
            if job.process.is_alive():
                os.kill(pid, signal.SIGKILL)
