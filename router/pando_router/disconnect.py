"""Cancels a block as soon as the client goes away, whatever the block is waiting for."""

import asyncio
from types import TracebackType

from starlette.types import Message, Receive

from pando_router.errors import ClientDisconnectedError


class UntilDisconnect:
    """`async with UntilDisconnect(receive):` raises ClientDisconnectedError out of the block.

    To be entered once the whole request body was received: from then on ASGI's `receive` returns
    only when the client is gone. Works as `asyncio.timeout` does, by cancelling the task that is in
    the block; a cancellation from elsewhere passes through as it is.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._disconnected = False
        self._watcher = asyncio.ensure_future(self._receive())
        self._watcher.add_done_callback(self._interrupt)

    def _interrupt(self, watcher: asyncio.Future[Message]) -> None:
        if not watcher.cancelled():
            watcher.exception()  # a receive that fails means that the client is gone as well
            self._disconnected = True
            self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watcher.remove_done_callback(self._interrupt)
        self._watcher.cancel()
        if (
            self._disconnected
            and self._task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            raise ClientDisconnectedError from error
