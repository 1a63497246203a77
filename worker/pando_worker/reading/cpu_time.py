"""A bound on the CPU time that a process spends on a file, whatever that makes the decoder do."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_AGAIN_S = 0.5  # of CPU time, if the first signal's exception was ignored, as in a finalizer


class CpuTimeError(Exception):
    """A block took more CPU time than it may."""


class _Interrupt(BaseException):
    """Not an Exception, which decoders catch for damaged files."""


@contextmanager
def bounded_cpu_time(most_s: float) -> Iterator[None]:
    """Bounds a block, which runs in the main thread. A call of it that does not return to Python is
    left only when it does.

    Args:
        most_s: of the whole process, in seconds

    Raises:
        CpuTimeError: the block took more.
    """
    before = signal.signal(signal.SIGPROF, _interrupt)
    try:
        signal.setitimer(signal.ITIMER_PROF, most_s, _AGAIN_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except _Interrupt:
        raise CpuTimeError from None
    finally:
        signal.signal(signal.SIGPROF, before)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise _Interrupt
