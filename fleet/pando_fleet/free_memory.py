"""Gives memory back to the system after a burst of large requests; or keeps it, in an engine and in
processes that read images.

Memory that Python and glibc have freed stays with the process in three ways. Objects that refer to
each other, such as an error and its traceback, wait for a full garbage collection. glibc keeps
freed blocks between used ones. And once it has freed a large block, it takes blocks of up to
32 MiB from its heap, which shrinks at its end only.
"""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from functools import cache

SOON_S = 2.0
PAUSE_S = 10.0
"""Between two trims: the garbage collection of one holds the event loop for some milliseconds."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
_LARGE_BLOCK = 256 * 1024
_ARENAS = 2
_LARGEST_OF_HEAP = 32 * 2**20  # a block; glibc allows no more
_KEPT = 256 * 2**20


def keep_little_free_memory() -> None:
    """Makes glibc return freed blocks above 256 KiB at once, for the life of the process. Call it
    at the start, when few threads have arenas of their own."""
    if set_option := _glibc("mallopt"):
        set_option(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        set_option(_M_TRIM_THRESHOLD, _LARGE_BLOCK)
        set_option(_M_ARENA_MAX, _ARENAS)


def keep_freed_memory() -> None:
    """Makes glibc keep freed blocks of up to 32 MiB, 256 MiB of them at its heap's end, for the
    life of the process. For one whose steps allocate the same arrays again and again: the system
    would clear this memory anew for each step. Call it before the process has threads that compute.

    Measured with whisper-base and four files of 30 s at once: 77,000 and 96,000 page faults without
    it, 800 with it. With an image of 1600 x 1200 pixels for LLaVA: 5,100 and 40, and 14 instead of
    26 ms of CPU.
    """
    if set_option := _glibc("mallopt"):
        set_option(_M_MMAP_THRESHOLD, _LARGEST_OF_HEAP)
        set_option(_M_TRIM_THRESHOLD, _KEPT)
        # Arenas of other threads are heaps of 64 MiB, which are always given back once empty.
        set_option(_M_ARENA_MAX, 1)


class Trimmer:
    """Trims once for all calls of `soon` in a time, SOON_S after the first, and not more often than
    every PAUSE_S."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0

    def soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time() + SOON_S, self._not_before), self._trim)

    def _trim(self) -> None:
        self._timer = None
        self._not_before = asyncio.get_running_loop().time() + PAUSE_S
        gc.collect()
        if trim := _glibc("malloc_trim"):
            # ctypes releases the GIL meanwhile.
            asyncio.get_running_loop().run_in_executor(None, trim, 0)


@cache
def _glibc(name: str) -> Callable[..., int] | None:
    """A function of glibc; None where another C library is used."""
    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return function
