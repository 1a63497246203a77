"""`Pace`: how fast adapters may be checked while steps run."""

import threading
import time

_SHARE = 0.08  # of a core; a step that wants all cores may take a tenth longer
_PIECE = 0.0005  # seconds; shorter rests would be mostly waking up
_STEPS_END = 0.2  # seconds after a step after which none is expected


class Pace:
    """Lets work in the background rest between its pieces while steps run on the same cores.

    Args:
        shares_cores: whether steps use all cores that there are
    """

    def __init__(self, *, shares_cores: bool) -> None:
        self._shares_cores = shares_cores
        self._last_step = -_STEPS_END
        self._thread = threading.local()

    def step(self) -> None:
        """A step begins or ends."""
        self._last_step = time.monotonic()

    def begin(self) -> None:
        """This thread begins to work."""
        self._thread.rested = time.thread_time()

    def rest(self) -> None:
        """To be called by a thread that has begun, after each millisecond or less of its work."""
        if not self._shares_cores:
            return
        used = time.thread_time() - self._thread.rested
        if used < _PIECE:
            return
        if time.monotonic() - self._last_step < _STEPS_END:
            time.sleep(used * (1 / _SHARE - 1))
        self._thread.rested = time.thread_time()
