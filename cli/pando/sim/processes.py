"""Processes of a command that simulates: how they start, and that none is left behind."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.resource_tracker import ensure_running
from typing import Any

END_S = 5.0  # for a process to end itself


@dataclass(frozen=True, slots=True)
class Child:
    process: SpawnProcess
    connection: "Connection[Any, Any]"


def start(target: Callable[..., None], name: str, task: object, *more: object) -> Child:
    """Calls `target` with the task, the other end of a connection, and `more`, in a new process.

    A terminal's Ctrl-C does not reach it if `target` begins with `lead_group`.
    """
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=target, args=(task, its, *more), name=name)
    # A terminal's Ctrl-C reaches the process until it has a group of its own. So the process begins
    # with the signal blocked, until it ignores it. Starting the tracker would unblock it.
    ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    its.close()  # so that our end sees when the process has ended
    return Child(process, ours)


def lead_group() -> None:
    """Makes this process, which `start` started, lead a group that a terminal's Ctrl-C does not
    reach. Its parent ends it by SIGTERM."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)


def how_ended(code: int | None) -> str:
    """An exit code in words."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}; the kernel does that if memory is short"
    return f"exit code {code}"


def end(children: Sequence[Child]) -> None:
    """Terminates all processes, and kills those that do not end, each with its group."""
    for child in children:
        child.process.terminate()
    deadline = time.monotonic() + END_S
    for child in children:
        child.process.join(max(0.0, deadline - time.monotonic()))
        _kill(child)  # also processes that it may have left behind
        child.process.join()
        child.connection.close()


def _leave(_number: int, _frame: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _kill(child: Child) -> None:
    pid = child.process.pid
    assert pid is not None, "it was started"
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # the group does not exist yet, or no longer
        with suppress(ProcessLookupError):
            if child.process.is_alive():
                os.kill(pid, signal.SIGKILL)
