"""Waits for another process by condition, with a bound, never for a fixed time; and reads processes
that may end meanwhile."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

import psutil

Value = TypeVar("Value")

PATIENCE_S = 240.0
"""Only a test that fails waits so long: on a busy machine anything may take many seconds."""


def pauses(at_least_s: float = 0.005, at_most_s: float = 0.1) -> Iterator[float]:
    """Seconds until a condition is looked at again, for ever: a tenth of what was waited so far. So
    what is soon true is soon seen, and what takes long is not slowed down by being asked."""
    began = time.monotonic()
    while True:
        yield min(max((time.monotonic() - began) / 10, at_least_s), at_most_s)


def until(condition: Callable[[], Value], what: str, seconds: float = PATIENCE_S) -> Value:
    """Waits until the condition returns a true value, and returns it; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    for pause in pauses():
        if value := condition():
            return value
        if time.monotonic() > deadline:
            break
        time.sleep(pause)
    raise AssertionError(f"after {seconds} s still not true: {what}")


async def until_async(
    condition: Callable[[], Value], what: str, seconds: float = PATIENCE_S
) -> Value:
    """The same for a test in an event loop, which keeps running."""
    return await asyncio.to_thread(until, condition, what, seconds)


def read_each(
    processes: Iterable[psutil.Process], read: Callable[[psutil.Process], Value]
) -> list[tuple[psutil.Process, Value]]:
    """The result of `read` for each process, without those that end before they are read."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a zombie is one, too
            found.append((process, read(process)))
    return found


def command_of(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def is_running(pid: int) -> bool:
    """Whether the process is alive; a zombie is not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
