"""Work that is done again and again for each of some names, each at its own pace.

What hangs for one name delays none of the others.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any


class Rounds:
    """`work` is done for one name, once at a time."""

    def __init__(self, work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def begin(self, names: Iterable[str], patience_s: float) -> None:
        """Begins with each name that nothing is under way for. Returns when all is done, or after
        `patience_s`, and raises what the work raised."""
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
        """Cancels what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
