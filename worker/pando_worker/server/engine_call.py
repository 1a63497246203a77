"""The requests of one client that run together, and their output until the client reads it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from pando_worker.messages import FinishReason, Output
from pando_worker.server.errors import ApiError


@dataclass(slots=True, eq=False)
class EngineRequest:
    """A request that the scheduler knows, with its unread output: a slow reader gets fewer, larger
    outputs.

    Outputs behind one that is still unread are kept as encoded bytes: as objects, 20
    log-probabilities take 1.7 KB per token, and Python does not return the memory of many small
    objects.
    """

    rid: str
    name: str
    index: int
    call: "EngineCall"
    finish: FinishReason | None = None
    unread_bytes: int = 0  # of the outputs behind the first
    _first: Output | None = None
    _behind: list[bytes] = field(default_factory=list)

    def add(self, output: Output) -> None:
        self.finish = output.finish
        if self._first is None:
            self._first = output
        else:
            encoded = _encode(output)
            self._behind.append(encoded)
            self.unread_bytes += len(encoded)

    def take(self) -> Output:
        assert self._first is not None, "it has news"
        output, behind = self._first, self._behind
        self._first, self._behind, self.unread_bytes = None, [], 0
        return _joined([output, *map(_decode, behind)]) if behind else output


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Output).decode


def _joined(outputs: Sequence[Output]) -> Output:
    first, last = outputs[0], outputs[-1]
    return msgspec.structs.replace(
        last,
        token_ids=[token for output in outputs for token in output.token_ids],
        queue_s=first.queue_s,
        logprobs=[score for output in outputs for score in output.logprobs],
        prompt_logprobs=[score for output in outputs for score in output.prompt_logprobs],
        probed=first.probed,
        is_source_cached=first.is_source_cached,
    )


class EngineCall:
    """Requests that run together for one client, identified by their index."""

    def __init__(self, abort: Callable[[str], None]) -> None:
        self._abort = abort
        self._requests: dict[int, EngineRequest] = {}  # whose end is still unread
        self._news: dict[int, EngineRequest] = {}  # with unread output, the oldest first
        self._arrived = asyncio.Event()
        self._error: ApiError | None = None

    async def outputs(self) -> AsyncGenerator[tuple[int, Output], None]:
        """Each request's outputs as they arrive; the last one of each has `finish`.

        Raises ApiError when the scheduler rejects one of them or ends.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._news:
                index = next(iter(self._news))
                output = self._news.pop(index).take()
                if output.finish is not None:
                    del self._requests[index]
                yield index, output
            elif self._requests:
                self._arrived.clear()
                await self._arrived.wait()
            else:
                return

    def stop(self, index: int) -> None:
        """Abort one request; it yields no more outputs."""
        self._news.pop(index, None)
        if (request := self._requests.pop(index, None)) and request.finish is None:
            self._abort(request.rid)

    def stop_all(self) -> None:
        for index in list(self._requests):
            self.stop(index)

    def started(self, request: EngineRequest) -> None:
        self._requests[request.index] = request

    def heard(self, request: EngineRequest) -> None:
        if request.index in self._requests:  # not after it was stopped
            self._news[request.index] = request
            self._arrived.set()

    def failed(self, request: EngineRequest, error: ApiError) -> None:
        self._news.pop(request.index, None)
        if self._requests.pop(request.index, None):
            self._error = error
            self._arrived.set()
