"""Handles the signals that end a command with a fleet, from before its event loop starts until the
process ends.

asyncio removes its handlers when a loop closes. A signal after that, or while the interpreter
exits, would end the process with the signal's exit code instead of its own. These handlers stay; at
the end the signals are set to "ignored", which lasts longer than Python.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndSignals:
    """Counts the signals, and reports the first two to the event loop that listens, if any."""

    def __init__(self) -> None:
        self.count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard: Callable[[], None] = lambda: None

    @contextmanager
    def heard_by(self, heard: Callable[[], None]) -> Iterator[None]:
        """Within the block, call `heard` in the running loop after each of the first two signals;
        once at the start if any came before."""
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        if self.count:
            heard()
        try:
            yield
        finally:
            self._loop = None

    def take(self, _number: int, _frame: FrameType | None) -> None:
        """The handler. Python calls it in the main thread, between any two instructions."""
        self.count += 1
        # More than two add nothing, and may come faster than they are handled, each during the
        # handling of the previous one.
        if self.count <= 2 and self._loop is not None:
            self._loop.call_soon_threadsafe(self._heard)


@contextmanager
def end_signals() -> Iterator[EndSignals]:
    """Handle the signals within the block and ignore them afterwards, so that the process ends with
    its own exit code. Only for the main thread of a command, around all of its work."""
    signals = EndSignals()
    for number in END_SIGNALS:
        signal.signal(number, signals.take)
    try:
        yield signals
    finally:
        # Blocked first, since Python reports a signal that arrives while its handler changes. It
        # may still arrive in another thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        sys.unraisablehook = partial(_report_others, sys.unraisablehook)
        for number in END_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _report_others(
    report: Callable[["sys.UnraisableHookArgs"], object], unraisable: "sys.UnraisableHookArgs"
) -> None:
    if "ignored due to race condition" not in str(unraisable.exc_value):
        report(unraisable)
