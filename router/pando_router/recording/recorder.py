"""Records requests when they have ended: the event loop makes the lines, a thread writes them.

The loop makes a request's record when it ends: some requests later, what it is made of is no longer
in the processor's cache. It hides the keys of some dozens at once, and packs their lines: a thread
would need much more for it beside a busy loop. The waiting lines are bounded. Those that do not
fit, or that the disk refuses, are dropped and counted.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, time

import msgspec

from pando_router.configuration.live import Live
from pando_router.configuration.settings import RouterSettings
from pando_router.exchange.exchange import Exchange, Listener, Order
from pando_router.recording.disguise import Disguise
from pando_router.recording.entry import hide, record_of
from pando_router.recording.files import Files
from pando_router.recording.folder import delete_old
from pando_router.recording.form import FleetState, Header, Record
from pando_router.recording.switch import Switch
from pando_router.telemetry.bounded_log import BoundedLog
from pando_router.telemetry.metrics import Metrics

EVERY_S = 1.0  # between two writes: each wakes a thread beside a busy event loop
CLEAN_S = 60.0  # between two looks for recordings that are too old
MAX_WAITING = 64 * 1024 * 1024  # bytes of lines

AT_ONCE_BYTES = 32 * 1024  # of records whose lines are made at once
RECORD_BYTES = 1024  # size of a record in memory, without its keys

# In one piece: each waits for the interpreter's lock, and takes it from a busy event loop.
MOST_WRITTEN = 4 * 1024 * 1024


class Lines(msgspec.Struct, gc=False):
    """Lines that are made together."""

    packed: bytes
    requests: int


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
        self._records: list[Record] = []  # of which no lines are made yet
        self._record_bytes = 0
        self._waiting: list[Lines] = []
        self._num_bytes = 0  # of lines that wait or are being written
        self._writing: asyncio.Task[None] | None = None
        # Of a piece, so that each fits into a file.
        self._most_bytes = min(MOST_WRITTEN, settings.record_file_bytes // 2)
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
        self._records.append(record)
        self._record_bytes += RECORD_BYTES + len(record.keys)
        if self._record_bytes >= AT_ONCE_BYTES:
            self._pack()

    def add(self, state: FleetState) -> None:
        """Records a line about the fleet, after those of the requests that ended before."""
        self._pack()
        self._wait(Lines(_encode_lines([state]), requests=0))

    def _pack(self) -> None:
        """Makes the lines of the requests that have ended."""
        if not self._records:
            return
        records, self._records, self._record_bytes = self._records, [], 0
        hide(records, self._disguise)
        self._wait(Lines(_encode_lines(records), len(records)))

    def _wait(self, lines: Lines) -> None:
        if self._num_bytes + len(lines.packed) > MAX_WAITING:
            self._lost("too many wait to be written", [lines])
            return
        self._num_bytes += len(lines.packed)
        self._waiting.append(lines)

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
        self._pack()
        if self._waiting or perf_counter() - self._cleaned_at >= CLEAN_S:
            self._writing = asyncio.create_task(self._write())
            await asyncio.shield(self._writing)
        else:
            self.adopt_secret()

    async def _write(self) -> None:
        lines, size, secret = self._waiting, self._num_bytes, self._disguise.secret
        self._waiting = []
        self.adopt_secret()
        try:
            written, error = await asyncio.to_thread(self._write_all, lines, secret)
        finally:
            self._num_bytes -= size
            self._writing = None
        self._metrics.recorded.inc(sum(some.requests for some in lines[:written]))
        if error:
            self._lost(error, lines[written:])

    def _write_all(self, lines: Sequence[Lines], secret: str) -> tuple[int, str]:
        """Runs in a thread. Returns how many were written, and why the others were not."""
        written = 0
        try:
            self._clean()
            self._files.hide_behind(secret)
            for some in _together(lines, self._most_bytes):
                self._files.write(b"".join([one.packed for one in some]), self.now)
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

    def _lost(self, why: str, lines: Sequence[Lines]) -> None:
        requests = sum(some.requests for some in lines)
        self.unrecorded += requests
        self._metrics.not_recorded.inc(requests)
        self._log(why, error=why)


def _together(lines: Sequence[Lines], most_bytes: int) -> Iterator[list[Lines]]:
    """Pieces to write, of at most so many bytes but for longer lines."""
    some, size = list[Lines](), 0
    for one in lines:
        if some and size + len(one.packed) > most_bytes:
            yield some
            some, size = [], 0
        some.append(one)
        size += len(one.packed)
    if some:
        yield some


_encode_lines = msgspec.json.Encoder().encode_lines
