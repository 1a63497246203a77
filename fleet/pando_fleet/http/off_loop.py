"""Work that grows with a request runs beside the event loop.

It is Python, so it shares the interpreter's lock with the loop. Compiled code, such as a parser,
keeps the lock until it ends, so it gets its input in pieces, and the loop has a turn between them.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

INLINE_BYTES = 16_384
"""Of JSON. A worker reads, validates and makes a chat of a body of this size in 4 ms at most."""

_SWITCH_S = 0.001
_STOPPED_S = 0.1  # after which a thread that waits for the loop sees whether it runs

# One thread only: each more would be another one to wait for.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="bodies")


def give_the_lock_back_soon() -> None:
    """Makes a thread that runs Python give the event loop the interpreter's lock within 1 ms, not
    Python's 5 ms, for the life of the process."""
    sys.setswitchinterval(_SWITCH_S)


async def off_loop(work: Callable[[], T], num_bytes: int, inline_bytes: int = INLINE_BYTES) -> T:
    """The work's result, or what it raises.

    Args:
        num_bytes: of JSON that the work goes through, or its cost in such bytes; up to
            `inline_bytes` the work runs at once
    """
    if num_bytes <= inline_bytes:
        return work()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREAD, _in_turns, loop, work)


def let_the_loop_turn() -> None:
    """Called by work between its pieces. Where it runs in a thread, it waits for one turn of the
    event loop after each millisecond.

    The interpreter's lock alone does not do that: the loop asks for it after it has waited for a
    millisecond, and on a busy machine it must get a core first, while the thread runs on.
    """
    if turns := _TURNS.get():
        turns.give()


def _in_turns(loop: asyncio.AbstractEventLoop, work: Callable[[], T]) -> T:
    token = _TURNS.set(_Turns(loop))
    try:
        return work()
    finally:
        _TURNS.reset(token)


class _Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next = time.monotonic() + _SWITCH_S

    def give(self) -> None:
        if time.monotonic() < self._next:
            return
        turned = threading.Lock()
        turned.acquire()
        self._loop.call_soon_threadsafe(turned.release)
        while not turned.acquire(timeout=_STOPPED_S):
            if not self._loop.is_running():
                return
        self._next = time.monotonic() + _SWITCH_S


_TURNS: ContextVar[_Turns | None] = ContextVar("turns", default=None)
