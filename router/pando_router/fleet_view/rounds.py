"""Repeats work for several names, each at its own pace.

A name whose work hangs does not delay the others.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any


class Rounds:
    """Runs `work` for each name, at most once at a time."""

    def __init__(self, work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def begin(self, names: Iterable[str], patience_s: float) -> None:
        """Starts the work of each name for which none is running.

        Returns when all work is done, or after `patience_s`. Raises what the work raised.
        """
        self._end()
        for name in names:
            if name not in self._under_way:
                self._under_way[name] = asyncio.create_task(self._work(name))
        if patience_s and self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=patience_s)
            self._end()

    def _end(self) -> None:
        for name, task in tuple(self._under_way.items()):
            if task.done():
                del self._under_way[name]
                task.result()

    async def close(self) -> None:
        """Cancels running work."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
