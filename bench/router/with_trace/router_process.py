"""A router as its own process that only places: a Placer with its own connection to Redis.

It settles its writes by its own clock, as in production; the time that the scripts see is passed
with each call. Calls and answers are msgpack with a length prefix, over a socket pair.
"""

import asyncio
import multiprocessing
import socket
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import SpawnProcess

import msgspec
import uvloop

from pando_fleet.placement.placer import Ask, Placement, Placer
from pando_fleet.redis.client import connect
from pando_fleet.redis.wire import Wire

_LENGTH = 4  # bytes


class _Call(msgspec.Struct, array_like=True):
    """A call of a Placer's `method`, with its arguments."""

    now_ms: int
    method: str
    ask: Ask | None = None
    placement: Placement | None = None
    keys: bytes = b""
    depth: int = 0


class RouterProcess:
    """Has a Placer's methods, which run in the other process in the order of the calls.

    If that process has ended, waiting calls raise ConnectionError.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        process: SpawnProcess,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._clock = clock
        self._process = process
        self._writer = writer
        self._reading = asyncio.create_task(self._read(reader))
        self._placing: dict[str, asyncio.Future[Placement]] = {}
        self._flushing: asyncio.Future[None] | None = None

    @classmethod
    async def start(cls, redis_url: str, pool: str, clock: Callable[[], int]) -> "RouterProcess":
        ours, theirs = socket.socketpair()
        # Spawned, because a copy of this process's event loop would be useless there.
        process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(theirs, redis_url, pool), daemon=True
        )
        process.start()
        theirs.close()
        router = cls(clock, process, *await asyncio.open_connection(sock=ours))
        await router.flush()  # its answer shows that it runs
        return router

    async def place(self, ask: Ask) -> Placement:
        answer: asyncio.Future[Placement] = asyncio.get_running_loop().create_future()
        self._placing[ask.lease] = answer
        self._send("place", ask=ask)
        return await answer

    def prefilled(self, placement: Placement) -> None:
        self._send("prefilled", placement=placement)

    def cut(self, placement: Placement, keys: bytes, depth: int) -> None:
        self._send("cut", placement=placement, keys=keys, depth=depth)

    def release(self, placement: Placement) -> None:
        self._send("release", placement=placement)

    async def flush(self) -> None:
        """Returns when everything called before is in Redis."""
        self._flushing = asyncio.get_running_loop().create_future()
        self._send("flush")
        await self._flushing

    async def close(self) -> None:
        self._writer.close()
        await self._reading
        await asyncio.to_thread(self._process.join)

    def _send(
        self,
        method: str,
        ask: Ask | None = None,
        placement: Placement | None = None,
        keys: bytes = b"",
        depth: int = 0,
    ) -> None:
        _write(self._writer, _Call(self._clock(), method, ask, placement, keys, depth))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decoder = msgspec.msgpack.Decoder(Placement | None)
        with suppress(asyncio.IncompleteReadError):
            while True:
                answer = decoder.decode(await _read_one(reader))
                if answer is not None:
                    self._placing.pop(answer.lease).set_result(answer)
                elif self._flushing is not None:
                    self._flushing.set_result(None)
        for waiting in (*self._placing.values(), self._flushing):
            if waiting is not None and not waiting.done():
                waiting.set_exception(ConnectionError("a router process has ended"))


def _write(writer: asyncio.StreamWriter, message: object) -> None:
    encoded = msgspec.msgpack.encode(message)
    writer.write(len(encoded).to_bytes(_LENGTH, "big") + encoded)


async def _read_one(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH), "big"))


def _serve(ours: socket.socket, redis_url: str, pool: str) -> None:
    uvloop.run(_Server(pool).run(ours, redis_url))


class _Server:
    """The other end. A failing call ends the process, and so the whole run."""

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._now_ms = 0

    async def run(self, ours: socket.socket, redis_url: str) -> None:
        reader, self._writer = await asyncio.open_connection(sock=ours)
        redis = connect(redis_url)
        wire = Wire(redis)
        self._placer = Placer(wire, self._pool, lambda: self._now_ms, _failed)
        decoder = msgspec.msgpack.Decoder(_Call)
        async with asyncio.TaskGroup() as tasks:
            with suppress(asyncio.IncompleteReadError):
                while True:
                    call = decoder.decode(await _read_one(reader))
                    self._now_ms = call.now_ms
                    if call.ask is not None:
                        tasks.create_task(self._place(call.ask))
                    elif call.placement is not None:
                        self._tell(call, call.placement)
                    else:
                        tasks.create_task(self._flush())
        await wire.aclose()
        await redis.aclose()

    def _tell(self, call: _Call, placement: Placement) -> None:
        if call.method == "prefilled":
            self._placer.prefilled(placement)
        elif call.method == "cut":
            self._placer.cut(placement, call.keys, call.depth)
        else:
            self._placer.release(placement)

    async def _place(self, ask: Ask) -> None:
        _write(self._writer, await self._placer.place(ask))

    async def _flush(self) -> None:
        await self._placer.flush()
        _write(self._writer, None)


def _failed(reason: str, count: int) -> None:
    raise SystemExit(f"{count} writes were lost: {reason}")
