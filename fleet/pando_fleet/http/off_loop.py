"""Work that grows with a request runs beside the event loop.

It is Python, so it shares the interpreter's lock with the loop. Compiled code, such as a parser,
keeps the lock until it ends, so it gets its input in pieces.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

INLINE_BYTES = 16_384
"""Of JSON. A worker reads, validates and makes a chat of a body of this size in 4 ms at most."""

_SWITCH_S = 0.001

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
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
