"""Cancels a block as soon as the client goes away, whatever the block is waiting for."""

import asyncio
from types import TracebackType
from typing import Protocol

from pando_router.errors import ClientDisconnectedError


class Watched(Protocol):
    gone: bool
    task: asyncio.Task[None] | None
    watcher: "UntilGone | None"


class UntilGone:
    """`with UntilGone(connection):` raises ClientDisconnectedError out of the block.

    For the task that serves the connection's request. Works as `asyncio.timeout` does, by
    cancelling that task; a cancellation from elsewhere passes through as it is.
    """

    __slots__ = ("_cancelling", "_connection", "_interrupted", "_task")

    def __init__(self, connection: Watched) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        if self._connection.gone:
            raise ClientDisconnectedError
        task = self._connection.task
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._interrupted = False
        self._connection.watcher = self

    def interrupt(self) -> None:
        self._interrupted = True
        self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.watcher = None
        if (
            self._interrupted
            and self._task.uncancel() <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            raise ClientDisconnectedError from error
