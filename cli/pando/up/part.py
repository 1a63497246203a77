"""A part of the fleet: a process that is started again, after a pause, whenever it crashes."""

import asyncio
import logging
from time import monotonic

from pando.up.guard import Guard
from pando.up.process import Command, Exit, Process, Relay

log = logging.getLogger("pando.up")

FIRST_PAUSE_S = 0.5  # doubled with every crash …
LONGEST_PAUSE_S = 30.0
LASTED_S = 60.0  # … until the process has lasted so long


class PartError(Exception):
    """A part ended before it was ever ready: what it is to serve is wrong, and stays wrong."""

    def __init__(self, name: str, end: Exit) -> None:
        super().__init__(f"{name} ended while starting ({end}): {end.reason}")


class Part:
    """Keeps one process running from `start` to `stop`."""

    def __init__(self, command: Command, guard: Guard, relay: Relay) -> None:
        self.command = command
        self.was_ready = False  # set by whoever watches it; from then on crashes are repaired
        self._guard = guard
        self._relay = relay
        self._process: Process | None = None
        self._stopping = asyncio.Event()
        self._killed = False
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Returns the task that keeps the process running; it raises PartError, or ends after
        `stop`."""
        self._keeping = asyncio.create_task(self._keep(), name=self.command.name)
        return self._keeping

    async def stop(self, grace_s: float) -> None:
        """Ask the process to end, wait for at most `grace_s` seconds, then kill it."""
        self._stopping.set()
        if self._process:
            self._process.terminate()
        if self._keeping and not self._keeping.done():
            _, running = await asyncio.wait([self._keeping], timeout=grace_s)
            if running:
                log.warning("%s did not end in %g s and is killed", self.command.name, grace_s)
                self.kill()
                await asyncio.wait([self._keeping])

    def kill(self) -> None:
        """End the process at once, and do not start it again."""
        self._stopping.set()
        self._killed = True
        if self._process:
            self._process.kill()

    async def _keep(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            started = monotonic()
            self._process = await Process.start(self.command, self._guard, self._relay)
            if self._killed:  # while the process was being made, and so with `stop`
                self._process.kill()
            elif self._stopping.is_set():
                self._process.terminate()
            end = await self._process.ended
            self._process = None
            if self._stopping.is_set():
                return
            if not self.was_ready:
                raise PartError(self.command.name, end)
            if monotonic() - started >= LASTED_S:
                pause_s = FIRST_PAUSE_S
            log.error(
                "%s crashed (%s); starting it again in %g s",
                *(self.command.name, end, pause_s),
                extra={"last_lines": list(end.last_lines[-5:])},
            )
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
