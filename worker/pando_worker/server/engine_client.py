"""The HTTP process's end of the two ZeroMQ pipes to the scheduler process.

`generate` runs one request as an async iterator of outputs; `stats`, `ready` and `changed` are the
scheduler's latest word. Every `Generate` sent gets exactly one last answer (an `Output` with
`finish`, or `Rejected`), also after an abort, so the requests known here bound all that is queued.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import zmq
import zmq.asyncio

from pando_worker.messages import (
    Abort,
    CacheFlushed,
    Command,
    Event,
    FinishReason,
    FlushCache,
    Generate,
    Output,
    Outputs,
    Ready,
    Rejected,
    SamplingParams,
    Stats,
)
from pando_worker.server.errors import ApiError, unavailable

log = logging.getLogger("pando.worker")


@dataclass(slots=True, eq=False)
class _Request:
    """A request that the scheduler knows; `token_ids` are those that nobody took yet.

    Bounded by the request's max_new_tokens: a slow reader gets fewer, larger outputs.
    """

    name: str
    token_ids: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    finish: FinishReason | None = None
    error: ApiError | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.error is not None


class EngineClient:
    def __init__(self, command_endpoint: str, event_endpoint: str) -> None:
        """Opens both sockets; to be made in the event loop that uses it."""
        self._context = zmq.asyncio.Context()
        # Unlimited, so that an abort never waits: the requests known bound it.
        blocking: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(self._context.underlying)
        self._commands = blocking.socket(zmq.PUSH)
        self._commands.set_hwm(0)
        # Connecting, other than binding, gives a queue at once: nothing sent is ever refused.
        self._commands.connect(command_endpoint)
        self._events = self._context.socket(zmq.PULL)
        self._events.bind(event_endpoint)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Event)

        self._requests: dict[str, _Request] = {}
        self._flushes: dict[int, asyncio.Future[bool]] = {}
        self._calls = itertools.count()
        self._ended: str | None = None

        self.ready: Ready | None = None
        self.stats: Stats | None = None
        self.loaded = asyncio.Event()  # set with Ready
        self.changed = asyncio.Event()  # set with Ready and each Stats; the heartbeat clears it

    @property
    def alive(self) -> bool:
        """Whether the scheduler process still runs, as far as is known."""
        return self._ended is None

    async def receive_events(self) -> None:
        """Dispatches the scheduler's events; runs as long as the engine does."""
        while True:
            self._dispatch(self._decoder.decode(await self._events.recv()))

    async def generate(
        self, name: str, input_ids: list[int], sampling: SamplingParams
    ) -> AsyncGenerator[Output, None]:
        """Outputs as they come, the last one with `finish`. Close it to abort the request.

        `name` need not be unique; it is what `abort` knows the request by.
        Raises ApiError when the scheduler rejects it or ends.
        """
        rid = f"{name}#{next(self._calls)}"
        self._send(Generate(rid=rid, input_ids=input_ids, sampling=sampling))
        request = self._requests[rid] = _Request(name)
        try:
            while True:
                await request.arrived.wait()
                request.arrived.clear()
                if request.error is not None:
                    raise request.error
                token_ids, request.token_ids = request.token_ids, []
                yield Output(
                    rid=rid,
                    token_ids=token_ids,
                    cached_tokens=request.cached_tokens,
                    finish=request.finish,
                )
                if request.finish is not None:
                    return
        finally:
            if not request.ended:
                self._abort(rid)

    def abort(self, name: str) -> int:
        """Aborts all requests of that name, which then end with finish ABORT. Returns how many."""
        rids = [rid for rid, request in self._requests.items() if request.name == name]
        for rid in rids:
            self._abort(rid)
        return len(rids)

    async def flush_cache(self) -> bool:
        """Empties the prefix cache; False where requests were running or waiting."""
        call = next(self._calls)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._flushes[call] = done
        try:
            self._send(FlushCache(call=call))
            return await done
        finally:
            del self._flushes[call]

    def end(self, reason: str) -> None:
        """Ends every request with a 503 that gives the reason, now and from now on."""
        self._ended = reason
        for request in self._requests.values():
            request.error = self._gone()
            request.arrived.set()
        self._requests.clear()
        for flush in self._flushes.values():
            if not flush.done():
                flush.set_exception(self._gone())
        self.changed.set()

    def close(self) -> None:
        self._commands.close(linger=0)
        self._events.close(linger=0)
        self._context.term()

    def _abort(self, rid: str) -> None:
        with suppress(ApiError):  # a scheduler that is gone has nothing left to abort
            self._send(Abort(rid=rid))

    def _send(self, command: Command) -> None:
        if self._ended is not None:
            raise self._gone()
        if self.ready is None:
            raise unavailable("the model is still loading", "model_loading")
        self._commands.send(self._encoder.encode(command), zmq.NOBLOCK)

    def _gone(self) -> ApiError:
        return unavailable(self._ended or "", "engine_gone")

    def _dispatch(self, event: Event) -> None:
        match event:
            case Outputs(outputs=outputs):
                for output in outputs:
                    self._deliver(output)
            case Rejected(rid=rid):
                if request := self._requests.pop(rid, None):
                    request.error = _rejection(event)
                    request.arrived.set()
            case Stats():
                self.stats = event
                self.changed.set()
            case Ready():
                self.ready = event
                self.loaded.set()
                self.changed.set()
            case CacheFlushed(call=call, done=done):
                if (flush := self._flushes.get(call)) and not flush.done():
                    flush.set_result(done)

    def _deliver(self, output: Output) -> None:
        request = self._requests.get(output.rid)
        if request is None:
            return  # ended by `end` while this was on its way
        request.token_ids += output.token_ids
        request.cached_tokens = output.cached_tokens
        request.finish = output.finish
        request.arrived.set()
        if output.finish is not None:
            del self._requests[output.rid]


def _rejection(event: Rejected) -> ApiError:
    match event.status:
        case 503:
            return unavailable(event.message, "queue_full")
        case 400:
            return ApiError(400, event.message)
        case _:
            log.error("the scheduler gave a request up: %s", event.message)
            return ApiError(event.status, event.message, kind="server_error")
