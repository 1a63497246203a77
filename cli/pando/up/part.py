"""A part of the fleet: a command that is kept running once it was ready."""

import logging
from functools import partial

from pando.up.process import Command, Exit, Process, Relay
from pando_fleet.guard import Guard
from pando_router.process.kept import Kept

log = logging.getLogger("pando.up")


class PartError(Exception):
    """A part ended before it was ever ready: what it is to serve is wrong, and stays wrong."""

    def __init__(self, name: str, end: Exit) -> None:
        super().__init__(f"{name} ended while starting ({end}): {end.reason}")


class Part:
    """The task of `kept` raises PartError where the part ends before it was ready."""

    def __init__(self, command: Command, guard: Guard, relay: Relay) -> None:
        self.was_ready = False  # set by the fleet; from then on a crash is followed by a restart
        begin = partial(Process.start, command, guard, relay)
        self.kept = Kept(command.name, begin, self._crashed)
        self._name = command.name

    def _crashed(self, process: Process, pause_s: float) -> None:
        end = process.ended.result()
        if not self.was_ready:
            raise PartError(self._name, end)
        log.error(
            "%s crashed (%s); starting it again in %g s",
            *(self._name, end, pause_s),
            extra={"last_lines": list(end.last_lines[-5:])},
        )
