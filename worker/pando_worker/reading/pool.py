"""`ReadingPool`: a few processes that read files of clients beside the event loop.

At most `MAX_READING` files wait for them or are in them. A cancelled read that has not begun leaves
its queue; one that runs ends where its work asks `is_cancelled`.
"""

import asyncio
import itertools
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, MutableSequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from pando_worker.parent import end_with_parent
from pando_worker.reading.array_file import ArrayFile, StoredRead, WithArrays

log = logging.getLogger("pando.worker")

P = ParamSpec("P")
T = TypeVar("T")
ReadT = TypeVar("ReadT", bound=WithArrays)

MAX_READING = 64
_NICENESS = 5  # Linux gives such a process a quarter of a core beside one that never waits


class ReadingPool:
    """
    Attributes:
        cancelled: shared with the processes: the number of a cancelled read, at this number's
            remainder by the length
    """

    def __init__(
        self,
        what: str,
        unavailable: Callable[[str], Exception],
        load: Callable[..., None],
        loaded_from: tuple[Any, ...],
        *,
        processes: int = 2,
        only_idle_cores: bool,
    ) -> None:
        """
        Args:
            what: is read, for messages: "images"
            unavailable: makes the error if nothing can be read now
            load: runs in each process before its first file, with `loaded_from`; if it raises, no
                file is read
            only_idle_cores: whether reading stops while the engine wants all cores; otherwise it
                then gets a quarter of one core for each process
        """
        self._what, self._unavailable = what, unavailable
        self._load, self._loaded_from = load, loaded_from
        self._processes, self._only_idle_cores = processes, only_idle_cores
        self._reading = 0
        self._numbers = itertools.count(1)
        self.cancelled = get_context("spawn").RawArray("q", MAX_READING)
        self._pool = self._new_pool()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """One of the files that are read at once. Raises the `unavailable` error if there are too
        many."""
        if self._reading >= MAX_READING:
            raise self._unavailable(f"{self._reading} {self._what} are already being read")
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1

    async def read(
        self,
        work: Callable[Concatenate[Path, P], list[StoredRead[ReadT]]],
        *args: P.args,
        **kw: P.kwargs,
    ) -> list[ReadT]:
        """What `work` makes, whose arrays it writes to an `ArrayFile`. Raises what `work` does."""
        with self._working_pool() as pool:
            file = ArrayFile()
            future = pool.submit(work, file.path, *args, **kw)
            try:
                stored = await result(future)
                return file.loaded(stored)
            finally:  # if this read is cancelled, `work` may write still
                future.add_done_callback(lambda _: file.close())

    @contextmanager
    def cancellable(self) -> Iterator[int]:
        """The number of a read, for which `is_cancelled` becomes true if it is cancelled."""
        number = next(self._numbers)
        try:
            yield number
        except asyncio.CancelledError:
            self.cancelled[number % len(self.cancelled)] = number
            raise

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._working_pool() as pool:
            return await result(pool.submit(work, *args, **kwargs))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _working_pool(self) -> Iterator[ProcessPoolExecutor]:
        """The pool, which another one replaces if one of its processes ends."""
        pool = self._pool
        try:
            yield pool
        except BrokenProcessPool as error:
            if self._pool is pool:
                log.error("a process that reads %s ended; others take its place", self._what)
                self._pool = self._new_pool()
            raise self._unavailable(f"a process that reads {self._what} ended") from error

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._processes,
            mp_context=get_context("spawn"),
            initializer=_prepare,
            initargs=(self.cancelled, self._load, self._loaded_from, self._only_idle_cores),
        )


def is_cancelled(number: int) -> bool:
    """Whether the read of this number is cancelled; for `work`, in its process."""
    return _cancelled[number % len(_cancelled)] == number


_cancelled: MutableSequence[int] = [0]  # of this process


def _prepare(
    cancelled: MutableSequence[int],
    load: Callable[..., None],
    loaded_from: tuple[Any, ...],
    only_idle_cores: bool,
) -> None:
    global _cancelled
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: the parent drains first
    end_with_parent()
    _cancelled = cancelled
    load(*loaded_from)
    if not only_idle_cores:
        os.nice(_NICENESS)
    elif sys.platform == "linux":
        # From here on: large files take cores that the engine leaves idle. A high niceness does
        # not suffice: an engine's thread that wakes would still wait for the other's slice to end.
        with suppress(PermissionError):  # of a sandbox, in which streams are slower then
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


async def result(future: Future[T]) -> T:
    """Of work that never begins if it is cancelled before."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        with suppress(RuntimeError):
            future.cancel()
        raise
