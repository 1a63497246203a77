"""Waiting for what another process does: by condition, with a bound, never for a fixed time."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

Value = TypeVar("Value")

POLL_S = 0.02


def until(condition: Callable[[], Value], what: str, seconds: float = 20) -> Value:
    """What the condition returns once it is true; fails with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(POLL_S)
    raise AssertionError(f"after {seconds} s still not true: {what}")


async def until_async(condition: Callable[[], Value], what: str, seconds: float = 20) -> Value:
    """The same for a test with an event loop of its own, which goes on meanwhile."""
    return await asyncio.to_thread(until, condition, what, seconds)


def is_running(pid: int) -> bool:
    """Whether the process lives; one that ended and waits for its parent does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
