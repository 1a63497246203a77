"""Limits log lines that could occur with every request: the first is written, the rest counted.

Otherwise a dead replica would cause a log line for every request.
"""

import asyncio
import logging
from dataclasses import dataclass, field

EVERY_S = 10.0

logger = logging.getLogger("pando.router")


@dataclass(slots=True)
class _Held:
    """The lines suppressed since the last one written."""

    times: int = 0
    extra: dict[str, object] = field(default_factory=dict)  # of the latest one


class BoundedLog:
    """Log lines with one message. Call it in the event loop only."""

    def __init__(
        self, message: str, level: int = logging.WARNING, *, every_s: float = EVERY_S
    ) -> None:
        self._message = message
        self._level = level
        self._every_s = every_s
        self._held: dict[str, _Held] = {}

    def __call__(self, about: str = "", **extra: object) -> None:
        """`about` is one of few values, such as a replica; each is limited separately. At debug
        level all lines are written."""
        held = self._held.get(about)
        if held is None:
            self._write(about, extra)
        else:
            held.times += 1
            held.extra = extra
            logger.debug(self._message, extra=extra)

    def _write(self, about: str, extra: dict[str, object]) -> None:
        logger.log(self._level, self._message, extra=extra)
        self._held[about] = _Held()
        asyncio.get_running_loop().call_later(self._every_s, self._say_how_often, about)

    def _say_how_often(self, about: str) -> None:
        held = self._held.pop(about)
        if held.times:
            self._write(about, {**held.extra, "times": held.times, "in_s": self._every_s})
