"""Cancels a block as soon as the client disconnects, whatever the block waits for."""

import asyncio
from types import TracebackType
from typing import Protocol

from pando_fleet.http.errors import ClientDisconnectedError


class Watched(Protocol):
    task: asyncio.Task[None] | None


class UntilGone:
    """`with connection.until_gone:` raises ClientDisconnectedError out of the block.

    One per connection, for the task that serves its request; blocks do not nest. Works like
    `asyncio.timeout`, by cancelling that task; other cancellations pass through unchanged.
    """

    __slots__ = ("_cancelling", "_connection", "_interrupted", "_task")

    def __init__(self, connection: Watched) -> None:
        self._connection: Watched | None = connection  # None: the client has disconnected
        self._task: asyncio.Task[None] | None = None  # within a block

    def __enter__(self) -> None:
        if self._connection is None:
            raise ClientDisconnectedError
        task = self._connection.task
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._interrupted = False

    def left(self) -> None:
        """The client has disconnected."""
        self._connection = None
        if self._task is not None:
            self._interrupted = True
            self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if (
            self._interrupted
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            raise ClientDisconnectedError from error
