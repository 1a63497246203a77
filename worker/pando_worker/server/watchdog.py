"""Notices a scheduler that says nothing any more, which a living one does twice a second."""

import asyncio
from typing import Protocol

TICKS = 20


class Heard(Protocol):
    @property
    def events_heard(self) -> int:
        """Events that the scheduler has sent; only grows."""


async def silence(engine: Heard, limit_s: float) -> None:
    """Returns once the scheduler has been silent for so long.

    Counted in ticks that this process itself lived through: where the whole worker was suspended,
    what the scheduler has said meanwhile is read before it is blamed.
    """
    heard, silent = engine.events_heard, 0
    while silent < TICKS:
        await asyncio.sleep(limit_s / TICKS)
        silent = silent + 1 if engine.events_heard == heard else 0
        heard = engine.events_heard
