"""Log lines that may come once a request: the first at once, the rest as a count now and then.

A replica that is dead would otherwise write as many lines as there are requests.
"""

import asyncio
import logging
from dataclasses import dataclass, field

EVERY_S = 10.0

logger = logging.getLogger("pando.router")


@dataclass(slots=True)
class _Held:
    """What was not said since the last line."""

    times: int = 0
    extra: dict[str, object] = field(default_factory=dict)  # of the last time


class BoundedLog:
    """Lines with one message, called in the event loop."""

    def __init__(
        self, message: str, level: int = logging.WARNING, *, every_s: float = EVERY_S
    ) -> None:
        self._message = message
        self._level = level
        self._every_s = every_s
        self._held: dict[str, _Held] = {}

    def __call__(self, about: str = "", **extra: object) -> None:
        """`about` is one of few, such as a replica: each has a first line of its own. At debug
        level all are written."""
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
