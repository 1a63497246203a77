"""Runs the router's background tasks until they are cancelled.

A task that ends by itself is an unforeseen fault: it is logged with its error, and `/healthz`
reports that a restart is needed; otherwise leases would no longer be renewed, or keys revoked.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

logger = logging.getLogger("pando.router")


class Background:
    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self.ended = ""  # name of the first task that ended by itself

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(partial(self._done, name))
        self._tasks.append(task)

    def watch(self, name: str, task: "asyncio.Task[None]") -> None:
        """Watches a task that its owner may end; only a failure is a fault."""
        task.add_done_callback(partial(self._done, name, may_be_cancelled=True))

    async def close(self) -> None:
        """Cancels all tasks and waits for them."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _done(
        self, name: str, task: "asyncio.Task[None]", *, may_be_cancelled: bool = False
    ) -> None:
        error = None if task.cancelled() else task.exception()
        if self._closing or (may_be_cancelled and error is None):
            return
        self.ended = self.ended or name
        logger.error("background work has ended", extra={"work": name}, exc_info=error)
