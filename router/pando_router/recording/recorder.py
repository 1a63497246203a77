"""Records requests when they have ended: the event loop makes the lines, a thread writes them.

A line takes the loop a few microseconds, much less than a thread would need for it beside a busy
loop. Only a long prompt's keys are hidden in the thread. The waiting lines are bounded. One that
does not fit, or that the disk refuses, is dropped and counted.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep, time

import msgspec

from pando_fleet.placement.prefix import KEY_BYTES
from pando_router.configuration.live import Live
from pando_router.configuration.settings import RouterSettings
from pando_router.exchange.exchange import Exchange, Listener, Order
from pando_router.recording.disguise import MOST_KEYS, Disguise
from pando_router.recording.entry import record_of
from pando_router.recording.files import Files
from pando_router.recording.folder import delete_old
from pando_router.recording.form import FleetState, Header, Record
from pando_router.recording.switch import Switch
from pando_router.telemetry.bounded_log import BoundedLog
from pando_router.telemetry.metrics import Metrics

EVERY_S = 1.0  # between two writes: each wakes a thread beside a busy event loop
CLEAN_S = 60.0  # between two looks for recordings that are too old
MAX_WAITING = 64 * 1024 * 1024  # bytes
RECORD_BYTES = 1024  # size of a record or its line in memory, without its keys
AT_ONCE = 32 * 1024  # bytes of lines that are written together

# The thread hides so many keys, then sleeps so that the event loop can run: Python itself would let
# the thread continue for 5 ms while requests wait. A prompt with more of them is hidden there.
SLICE_BYTES = MOST_KEYS * KEY_BYTES  # about 0.02 ms
PAUSE_S = 0.0001

Line = bytes | Record | FleetState
"""A request's line, the record of one whose keys are not hidden yet, or a line about the fleet."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the files that a router writes, and the secret that all of them share."""

    secret: bytes = field(repr=False)
    number: int | None = None  # of the process; None if there is only one

    @classmethod
    def of(cls, settings: RouterSettings, number: int | None = None) -> "Part":
        if settings.record_secret is None:
            return cls(secrets.token_bytes(32), number)
        return cls(settings.record_secret.get_secret_value().encode(), number)

    def path(self, whole: Path) -> Path:
        """`FILE.jsonl` becomes `FILE-3.jsonl`."""
        if self.number is None:
            return whole
        return whole.with_name(f"{whole.stem}-{self.number}{whole.suffix}")


class Recorder(Listener):
    """Observes all requests; call `run` beside them, and `close` at the end."""

    def __init__(
        self, live: Live, path: Path, part: Part, switch: Switch, router: str, metrics: Metrics
    ) -> None:
        """`router` names this one among the routers."""
        self._live = live
        settings = live.settings
        self._began = time() - perf_counter()  # so that clock adjustments do not affect the trace
        self._path = path
        self._secret = switch.secret
        self._disguise = Disguise(self._secret)
        self._files = Files(
            part.path(path),
            Header(started=0.0, router=router, secret=self._disguise.secret),
            max_bytes=settings.record_file_bytes,
            most=settings.record_files,
            days=settings.record_days,
        )
        self._switch = switch
        self._open: dict[Exchange, float] = {}  # start times, in the order of arrival
        self._waiting: list[Line] = []
        self._num_bytes = 0  # of lines that wait or are being written
        self._writing: asyncio.Task[None] | None = None
        self._cleaned_at = -CLEAN_S  # by perf_counter
        self._metrics = metrics
        self._log = BoundedLog("requests were not recorded", logging.ERROR)
        self.unrecorded = 0  # requests, in total

    @property
    def now(self) -> float:
        """Unix time."""
        return self._began + perf_counter()

    def body_read(self, exchange: Exchange, order: Order) -> None:
        if self._switch.on and order.prompt.request.computes:
            exchange.keep_tail()
            self._open[exchange] = self._began + perf_counter()

    def ended(self, exchange: Exchange) -> None:
        at = self._open.pop(exchange, None)
        if at is None:
            return
        now = self._began + perf_counter()
        oldest = next(iter(self._open.values()), now)
        expected_tokens = self._live.settings.expected_output_tokens
        record = record_of(exchange, at, now, oldest, expected_tokens)
        if record.session:
            record.session = self._disguise.name(record.session)
        size = RECORD_BYTES + len(record.keys)
        if len(record.keys) > SLICE_BYTES:
            self._wait(record, size)
        else:
            record.keys = self._disguise.keys(record.keys)
            self._wait(_encode(record), size)

    def add(self, state: FleetState) -> None:
        """Records a line about the fleet."""
        measured = sum(len(pool.measured) for pool in state.pools.values())
        self._wait(state, RECORD_BYTES * (1 + measured))

    def _wait(self, line: Line, size: int) -> None:
        if self._num_bytes + size > MAX_WAITING:
            self._lost("too many wait to be written", [line])
            return
        self._num_bytes += size
        self._waiting.append(line)

    def adopt_secret(self) -> None:
        """Hides further keys behind the switch's secret. Call it while no line waits, since those
        that are written together have keys of one secret."""
        if self._switch.secret != self._secret:
            self._secret = self._switch.secret
            self._disguise = Disguise(self._secret)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self._flush()

    async def close(self) -> None:
        """Writes the remaining records."""
        await self._flush()
        try:
            await asyncio.to_thread(self._files.close)
        except OSError as error:
            self._log(error=str(error))

    async def _flush(self) -> None:
        """Cannot be interrupted by a cancellation; a second call waits for the first."""
        while self._writing is not None:
            await asyncio.shield(self._writing)
        if self._waiting or perf_counter() - self._cleaned_at >= CLEAN_S:
            self._writing = asyncio.create_task(self._write())
            await asyncio.shield(self._writing)
        else:
            self.adopt_secret()

    async def _write(self) -> None:
        lines, size = self._waiting, self._num_bytes
        disguise = Disguise(self._secret)  # the thread's own
        self._waiting = []
        self.adopt_secret()
        try:
            written, error = await asyncio.to_thread(self._write_all, lines, disguise)
        finally:
            self._num_bytes -= size
            self._writing = None
        self._metrics.recorded.inc(_requests(lines[:written]))
        if error:
            self._lost(error, lines[written:])

    def _write_all(self, lines: Sequence[Line], disguise: Disguise) -> tuple[int, str]:
        """Runs in a thread. Returns how many were written, and why the others were not."""
        written = 0
        try:
            self._clean()
            self._files.hide_behind(disguise.secret)
            for some in _together(lines, disguise):
                self._files.write(b"\n".join([*some, b""]), self.now)
                written += len(some)
        except OSError as error:
            return written, error.strerror or str(error)
        return written, ""

    def _clean(self) -> None:
        """Deletes old recordings now and then. Raises OSError."""
        if perf_counter() - self._cleaned_at < CLEAN_S:
            return
        self._cleaned_at = perf_counter()
        self._files.end_old(self.now)
        delete_old(self._path, self._live.settings.record_days, self.now)

    def _lost(self, why: str, lines: Sequence[Line]) -> None:
        requests = _requests(lines)
        self.unrecorded += requests
        self._metrics.not_recorded.inc(requests)
        self._log(why, error=why)


def _requests(lines: Sequence[Line]) -> int:
    return sum(not isinstance(line, FleetState) for line in lines)


_encode = msgspec.json.Encoder().encode


def _together(lines: Sequence[Line], disguise: Disguise) -> Iterator[list[bytes]]:
    some, size = list[bytes](), 0
    for line in lines:
        packed = _packed(line, disguise)
        some.append(packed)
        size += len(packed)
        if size >= AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some


def _packed(line: Line, disguise: Disguise) -> bytes:
    """A line as it is written. Runs in a thread."""
    if isinstance(line, bytes):
        return line
    if isinstance(line, Record):
        line.keys = b"".join(_hidden(line.keys, disguise))
    return _encode(line)


def _hidden(keys: bytes, disguise: Disguise) -> Iterator[bytes]:
    for start in range(0, len(keys), SLICE_BYTES):
        yield disguise.keys(keys[start : start + SLICE_BYTES])
        sleep(PAUSE_S)
