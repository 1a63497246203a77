"""The HTTP process's end of the two ZeroMQ pipes to the scheduler process.

`call` runs the requests of one client together; `embed`, `align` and `verify` run one each, and
`loading`, `ready` and `stats` hold the scheduler's latest reports. Each request gets exactly one
final answer (an `Output` with `finish`, `Embedded`, `Aligned`, `Verified`, or `Rejected`), even
after an abort, so the requests known here bound the length of all queues.
"""

import asyncio
import itertools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec
import zmq
import zmq.asyncio

from pando_worker.messages import (
    Abort,
    AdapterDone,
    AdapterLoaded,
    AdapterPlaces,
    AdapterRefused,
    Align,
    Aligned,
    CacheFlushed,
    Command,
    Embed,
    Embedded,
    Event,
    FlushCache,
    Generate,
    LoadAdapter,
    Loading,
    Output,
    Outputs,
    PinAdapter,
    Ready,
    Rejected,
    UnloadAdapter,
    Verified,
    Verify,
    Working,
)
from pando_worker.server.engine_call import EngineCall, EngineRequest
from pando_worker.server.errors import ApiError, aborted, deadline_passed, too_slow, unavailable
from pando_worker.stats import Stats
from pando_worker.wire import CommandSender

log = logging.getLogger("pando.worker")

_Answer = Embedded | Aligned | Verified | ApiError
_ControlAnswer = CacheFlushed | AdapterLoaded | AdapterDone | AdapterRefused


@dataclass(frozen=True, slots=True)
class _PendingAnswer:
    """An embedding, an alignment or a verification that the scheduler knows. Errors are kept as
    results: its client may be gone."""

    name: str
    done: asyncio.Future[_Answer]

    def end(self, result: _Answer) -> None:
        if not self.done.done():
            self.done.set_result(result)


class EngineClient:
    def __init__(self, command_endpoint: str, event_endpoint: str, max_unread_bytes: int) -> None:
        """Opens both sockets. Create it in the event loop that uses it. `max_unread_bytes` bounds
        the unread output that is kept for one request."""
        self._max_unread_bytes = max_unread_bytes
        self._context = zmq.asyncio.Context()
        # Unlimited, so that an abort never waits; the number of known requests bounds it.
        blocking: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(self._context.underlying)
        self._commands = blocking.socket(zmq.PUSH)
        self._commands.set_hwm(0)
        # Unlike `bind`, `connect` creates a queue at once, so no message is ever refused.
        self._commands.connect(command_endpoint)
        self._events = self._context.socket(zmq.PULL)
        self._events.bind(event_endpoint)
        self._sender = CommandSender(self._commands)
        self._decoder = msgspec.msgpack.Decoder(Event)

        self._requests: dict[str, EngineRequest] = {}
        self._pending: dict[str, _PendingAnswer] = {}
        self._control: dict[int, asyncio.Future[_ControlAnswer]] = {}
        self._calls = itertools.count()
        self._ended: str | None = None

        self.loading: Loading | None = None
        self.ready: Ready | None = None
        self.stats: Stats | None = None
        self.adapter_places = AdapterPlaces()
        self.events_heard = 0
        self.announced_s = 0.0  # announced by its last event: how long it may be silent
        self.is_stalled = False
        self.loaded = asyncio.Event()  # set with Ready
        self.changed = asyncio.Event()  # set when a heartbeat is due; the heartbeat clears it

    @property
    def alive(self) -> bool:
        """Whether the scheduler process still runs, as far as this process knows."""
        return self._ended is None

    async def receive_events(self) -> None:
        """Dispatches the scheduler's events; runs as long as the engine does."""
        while True:
            event = self._decoder.decode(await self._events.recv())
            self.events_heard += 1
            self.announced_s = event.seconds if isinstance(event, Working) else 0.0
            self._dispatch(event)

    def judge(self, silent_s: float, *, is_stalled: bool) -> None:
        """Called with the length of the scheduler's silence; see `watchdog`."""
        if is_stalled is self.is_stalled:
            return
        self.is_stalled = is_stalled
        self.changed.set()
        if is_stalled:
            log.error(
                "the engine has not responded for %.1f s: this worker is stalled and accepts no"
                " requests until it does",
                silent_s,
            )
        else:
            log.warning("the engine responds again: this worker accepts requests")

    @contextmanager
    def call(self, orders: Sequence[Generate]) -> Iterator[EngineCall]:
        """Runs the requests while the block runs, then aborts those that have not ended.

        Their rids, by which `abort` finds them, need not be unique.
        Raises ApiError while the model loads or the scheduler is stalled, and after its end.
        """
        call = EngineCall(self._abort)
        try:
            for index, order in enumerate(orders):
                rid = f"{order.rid}#{next(self._calls)}"
                self._ask(msgspec.structs.replace(order, rid=rid))
                request = self._requests[rid] = EngineRequest(rid, order.rid, index, call)
                call.started(request)
            yield call
        finally:
            call.stop_all()

    async def embed(self, order: Embed) -> Embedded:
        """Runs one embedding; cancelling aborts it. Its rid need not be unique, as in `call`.

        Raises ApiError as `call` does, when the scheduler rejects it, and after `abort`.
        """
        answer = await self._answer(order)
        assert isinstance(answer, Embedded)
        return answer

    async def align(self, order: Align) -> Aligned:
        """Runs one alignment, as `embed` an embedding."""
        answer = await self._answer(order)
        assert isinstance(answer, Aligned)
        return answer

    async def verify(self, order: Verify) -> Verified:
        """Runs one verification, as `embed` an embedding."""
        answer = await self._answer(order)
        assert isinstance(answer, Verified)
        return answer

    async def _answer(self, order: Embed | Align | Verify) -> Embedded | Aligned | Verified:
        rid = f"{order.rid}#{next(self._calls)}"
        self._ask(msgspec.structs.replace(order, rid=rid))
        done: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._pending[rid] = _PendingAnswer(order.rid, done)
        try:
            result = await done
        finally:
            if done.cancelled():
                self._abort(rid)
        if isinstance(result, ApiError):
            raise result
        return result

    def abort(self, name: str) -> int:
        """Aborts all requests of that name and returns their number. A `Generate` ends with
        finish ABORT, the others with an error."""
        names = {rid: request.name for rid, request in self._requests.items()}
        names |= {rid: pending.name for rid, pending in self._pending.items()}
        rids = [rid for rid, known in names.items() if known == name]
        for rid in rids:
            self._abort(rid)
        return len(rids)

    async def flush_cache(self) -> bool:
        """Empties the prefix cache. Returns False if requests were running or waiting."""
        answer = await self._run(FlushCache(call=next(self._calls)))
        return isinstance(answer, CacheFlushed) and answer.done

    async def load_adapter(self, path: str) -> AdapterLoaded:
        """Has an adapter checked; requests may name it by its identity until it was unloaded as
        often as loaded. Raises ApiError if it cannot be used."""
        answer = await self._run(LoadAdapter(call=next(self._calls), path=path))
        assert isinstance(answer, AdapterLoaded)
        return answer

    async def pin_adapter(self, identity: bytes, *, is_pinned: bool) -> None:
        """Raises ApiError if there is no room for it."""
        call = next(self._calls)
        await self._run(PinAdapter(call=call, identity=identity, is_pinned=is_pinned))

    async def unload_adapter(self, identity: bytes) -> None:
        await self._run(UnloadAdapter(call=next(self._calls), identity=identity))

    def end(self, reason: str) -> None:
        """Ends every current and future request with a 503 that gives the reason."""
        self._ended = reason
        for request in self._requests.values():
            request.call.failed(request, self._gone())
        self._requests.clear()
        for pending in self._pending.values():
            pending.end(self._gone())
        self._pending.clear()
        for answer in self._control.values():
            if not answer.done():
                answer.set_exception(self._gone())
        self.changed.set()

    def close(self) -> None:
        self._commands.close(linger=0)
        self._events.close(linger=0)
        self._context.term()

    def _abort(self, rid: str) -> None:
        with suppress(ApiError):  # a scheduler that is gone has nothing left to abort
            self._send(Abort(rid=rid))

    async def _run(
        self, command: FlushCache | LoadAdapter | PinAdapter | UnloadAdapter
    ) -> _ControlAnswer:
        """Raises ApiError if it is refused, and as `call` does."""
        done: asyncio.Future[_ControlAnswer] = asyncio.get_running_loop().create_future()
        self._control[command.call] = done
        try:
            if isinstance(command, UnloadAdapter):
                self._send(command)  # a stalled engine does it once it responds again
            else:
                self._ask(command)
            answer = await done
        finally:
            del self._control[command.call]
        if isinstance(answer, AdapterRefused):
            raise _refusal(answer)
        return answer

    def _ask(self, command: Command) -> None:
        if self.is_stalled:
            raise unavailable("the engine has not responded for some seconds", "engine_stalled")
        self._send(command)

    def _send(self, command: Command) -> None:
        if self._ended is not None:
            raise self._gone()
        if self.ready is None:
            raise unavailable("the model is still loading", "model_loading")
        self._sender.send(command)

    def _gone(self) -> ApiError:
        return unavailable(self._ended or "", "engine_gone")

    def _dispatch(self, event: Event) -> None:
        match event:
            case Outputs(outputs=outputs):
                for output in outputs:
                    self._deliver(output)
            case Embedded(rid=rid) | Aligned(rid=rid) | Verified(rid=rid):
                if pending := self._pending.pop(rid, None):
                    pending.end(event)
            case Rejected(rid=rid):
                if request := self._requests.pop(rid, None):
                    request.call.failed(request, _rejection(event))
                elif pending := self._pending.pop(rid, None):
                    pending.end(_rejection(event))
            case Stats():
                self.stats = event
                self.changed.set()
            case Loading():
                self.loading = event
                self.changed.set()
            case Ready():
                self.ready = event
                self.loaded.set()
                self.changed.set()
            case AdapterPlaces():
                self.adapter_places = event
                self.changed.set()
            case CacheFlushed() | AdapterLoaded() | AdapterDone() | AdapterRefused():
                if (done := self._control.get(event.call)) and not done.done():
                    done.set_result(event)

    def _deliver(self, output: Output) -> None:
        request = self._requests.get(output.rid)
        if request is None:
            if pending := self._pending.pop(output.rid, None):
                pending.end(aborted())
            return  # else `end` ended it while this output was in transit
        request.add(output)
        if output.finish is not None:
            del self._requests[output.rid]
        elif request.unread_bytes > self._max_unread_bytes:
            self._give_up(request)
            return
        request.call.heard(request)

    def _give_up(self, request: EngineRequest) -> None:
        """End a request whose client is too far behind; if it reads nothing, it is disconnected."""
        del self._requests[request.rid]
        self._abort(request.rid)
        log.warning(
            "ended a request whose client is behind by more than max_unread_bytes",
            extra={"request_id": request.name, "bytes": request.unread_bytes},
        )
        request.call.failed(request, too_slow(self._max_unread_bytes))


def _refusal(event: AdapterRefused) -> ApiError:
    match event.status:
        case 400:
            return ApiError(400, event.message, param="lora_path", code="invalid_adapter")
        case 409:
            return ApiError(409, event.message, code="no_room_for_adapter")
        case status:
            return ApiError(status, event.message, kind="server_error")


def _rejection(event: Rejected) -> ApiError:
    match event.status:
        case 503:
            return unavailable(event.message, "queue_full")
        case 400:
            return ApiError(400, event.message)
        case 404:
            return ApiError(404, event.message, param="model", code="model_not_found")
        case 502:
            return unavailable(event.message, "adapter_unavailable")
        case 504:
            return deadline_passed(event.message)
        case _:
            log.error("the scheduler failed a request: %s", event.message)
            return ApiError(event.status, event.message, kind="server_error")
