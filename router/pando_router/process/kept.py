"""Keeps a process running: restarts it, after a pause, whenever it ends by itself.

`pando router` runs its processes with it, and `pando up` the parts of its fleet.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

logger = logging.getLogger("pando.kept")

FIRST_PAUSE_S = 0.5  # doubled by every crash …
LONGEST_PAUSE_S = 30.0
LASTED_S = 60.0  # … until a process has lasted this long


class Running(Protocol):
    """A started process; `terminate` asks it to end."""

    ended: asyncio.Future[Any]

    def terminate(self) -> None: ...
    def kill(self) -> None: ...


P = TypeVar("P", bound=Running)


class Kept(Generic[P]):
    """Keeps one process running from `start` to `stop`."""

    def __init__(
        self, name: str, begin: Callable[[], Awaitable[P]], crashed: Callable[[P, float], None]
    ) -> None:
        """`begin` starts the process. `crashed` is called with a process that ended by itself and
        the seconds until its successor starts; if it raises, there is none."""
        self.process: P | None = None  # None during a pause
        self._name, self._begin, self._crashed = name, begin, crashed
        self._stopping = asyncio.Event()
        self._killed = False
        self._keeping: asyncio.Task[P] | None = None

    def start(self) -> asyncio.Task[P]:
        """Returns the task that keeps the process running. The task raises what `crashed` raises,
        or returns the last process after `terminate`, `stop` or `kill`."""
        self._keeping = asyncio.create_task(self._keep(), name=self._name)
        return self._keeping

    def terminate(self) -> None:
        """Asks the process to end, and does not restart it. May be called again."""
        self._stopping.set()
        if self.process:
            self.process.terminate()

    def kill(self) -> None:
        """Ends the process at once, and does not restart it."""
        self._stopping.set()
        self._killed = True
        if self.process:
            self.process.kill()

    async def stop(self, grace_s: float) -> None:
        """Asks the process to end, waits for at most `grace_s` seconds, then kills it."""
        self.terminate()
        if self._keeping is None:
            return
        _, running = await asyncio.wait([self._keeping], timeout=grace_s)
        if running:
            logger.warning("%s did not end within %g s and is killed", self._name, grace_s)
            self.kill()
            await asyncio.wait([self._keeping])

    async def _keep(self) -> P:
        pause_s = FIRST_PAUSE_S
        while True:
            started = monotonic()
            process = self.process = await self._begin()
            if self._killed:  # `kill` was called while it started
                process.kill()
            elif self._stopping.is_set():
                process.terminate()
            await process.ended
            self.process = None
            if self._stopping.is_set():
                return process
            if monotonic() - started >= LASTED_S:
                pause_s = FIRST_PAUSE_S
            self._crashed(process, pause_s)
            try:
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
                    return process
            except TimeoutError:
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
