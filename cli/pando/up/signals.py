"""The signals that end a command with a fleet, handled from before its loop starts until the
process's last moment.

asyncio gives its handlers back when a loop closes; a signal that came then, or while the
interpreter leaves, would end the process by itself, whatever its exit code was to be. These
handlers stay, and at the end make way for "ignored", the disposition that outlasts Python.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndSignals:
    """Counts the signals that came, and tells the first two to the loop that listens, if any."""

    def __init__(self) -> None:
        self.count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard: Callable[[], None] = lambda: None

    @contextmanager
    def heard_by(self, heard: Callable[[], None]) -> Iterator[None]:
        """Within the block `heard` is called in the running loop after each of the first two
        signals, and once at first where some came before."""
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
        # Two say all there is to say. More may come faster than they are handled, each within the
        # handling of the one before it.
        if self.count <= 2 and self._loop is not None:
            self._loop.call_soon_threadsafe(self._heard)


@contextmanager
def end_signals() -> Iterator[EndSignals]:
    """Handles the signals within the block; after it they are ignored for good, so that the
    process ends with its own exit code. Only for a command's main thread, around all it does."""
    signals = EndSignals()
    for number in END_SIGNALS:
        signal.signal(number, signals.take)
    try:
        yield signals
    finally:
        # Blocked first, since Python complains of a signal that comes while its handler changes.
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        for number in END_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
