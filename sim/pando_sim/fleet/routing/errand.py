"""`Errand`: a coroutine of production code that sometimes waits for virtual time.

Everything else that it awaits, such as Redis, takes no virtual time. The caller of `begin` or
`go_on` waits until the errand waits for virtual time again or has ended. So only one errand runs at
a time, and a run is the same each time.
"""

import asyncio
from collections.abc import Coroutine


class Errand:
    def __init__(self) -> None:
        self._waits = asyncio.Event()
        self._answer: asyncio.Future[int] | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self, work: Coroutine[None, None, None]) -> None:
        """Raises what the coroutine raises."""
        self._task = asyncio.create_task(work)
        await self._until_it_waits()

    async def answer(self) -> int:
        """For the coroutine: waits for the argument of the next `go_on`."""
        self._answer = asyncio.get_running_loop().create_future()
        self._waits.set()
        return await self._answer

    async def go_on(self, answer: int | Exception) -> None:
        """An exception is raised where the coroutine waits. Raises what the coroutine raises."""
        assert self._answer is not None
        self._waits.clear()
        if isinstance(answer, Exception):
            self._answer.set_exception(answer)
        else:
            self._answer.set_result(answer)
        await self._until_it_waits()

    @property
    def has_ended(self) -> bool:
        return self._task is not None and self._task.done()

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _until_it_waits(self) -> None:
        assert self._task is not None
        waits = asyncio.create_task(self._waits.wait())
        await asyncio.wait((self._task, waits), return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        if self._task.done():
            self._task.result()
