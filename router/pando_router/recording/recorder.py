"""Records requests as they end, outside their path: a thread hides the keys and writes the lines.

The waiting records are bounded. A record that does not fit, or that the disk refuses, is dropped
and counted.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep, time

import msgspec

from pando_router.configuration.live import Live
from pando_router.configuration.settings import RouterSettings
from pando_router.exchange.exchange import Exchange, Listener, Order
from pando_router.recording.entry import record_of
from pando_router.recording.files import Files
from pando_router.recording.folder import delete_old
from pando_router.recording.form import Disguise, FleetState, Header, Record
from pando_router.recording.switch import Switch
from pando_router.telemetry.bounded_log import BoundedLog
from pando_router.telemetry.metrics import Metrics

EVERY_S = 0.2
CLEAN_S = 60.0  # between two looks for recordings that are too old
MAX_WAITING = 64 * 1024 * 1024  # bytes
RECORD_BYTES = 1024  # size of a record in memory, without its keys

# The thread works for SLICE_S, then sleeps so that the event loop can run: Python itself would let
# the thread continue for 5 ms while requests wait.
SLICE_S = 0.0002
PAUSE_S = 0.0001


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
        self._waiting: list[Record | FleetState] = []
        self._num_bytes = 0  # of records that wait or are being written
        self._writing: asyncio.Task[None] | None = None
        self._cleaned_at = -CLEAN_S  # by perf_counter
        self._metrics = metrics
        self._log = BoundedLog("requests were not recorded", logging.ERROR)
        self.unrecorded = 0  # requests, in total

    @property
    def now(self) -> float:
        """Unix time."""
        return round(self._began + perf_counter(), 6)

    def body_read(self, exchange: Exchange, order: Order) -> None:
        if self._switch.on and order.prompt.request.computes:
            exchange.keep_tail()
            self._open[exchange] = self.now

    def ended(self, exchange: Exchange) -> None:
        at = self._open.pop(exchange, None)
        if at is None:
            return
        now = self.now
        oldest = next(iter(self._open.values()), now)
        expected_tokens = self._live.settings.expected_output_tokens
        record = record_of(exchange, at, now, oldest, expected_tokens)
        self._wait(record, RECORD_BYTES + len(record.keys))

    def add(self, state: FleetState) -> None:
        """Records a line about the fleet."""
        self._wait(state, _size(state))

    def _wait(self, line: Record | FleetState, size: int) -> None:
        if self._num_bytes + size > MAX_WAITING:
            self._lost("too many wait to be written", [line])
            return
        self._num_bytes += size
        self._waiting.append(line)

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

    async def _write(self) -> None:
        lines, self._waiting = self._waiting, []
        size = sum(map(_size, lines))
        try:
            written, error = await asyncio.to_thread(self._hide_and_write, lines)
        finally:
            self._num_bytes -= size
            self._writing = None
        self._metrics.recorded.inc(sum(isinstance(line, Record) for line in lines[:written]))
        if error:
            self._lost(error, lines[written:])

    def _hide_and_write(self, lines: Sequence[Record | FleetState]) -> tuple[int, str]:
        """Runs in a thread. Returns how many were written, and why the others were not."""
        written = 0
        try:
            self._clean()
            for packed in self._packed(lines):
                self._files.write(b"".join(packed), self.now)
                written += len(packed)
        except OSError as error:
            return written, error.strerror or str(error)
        return len(lines), ""

    def _packed(self, lines: Sequence[Record | FleetState]) -> Iterator[list[bytes]]:
        """The lines of each slice of work."""
        packed: list[bytes] = []
        slice_ends = perf_counter() + SLICE_S
        for line in lines:
            if isinstance(line, Record):
                line.keys = self._disguise.keys(line.keys)
                line.session = self._disguise.name(line.session) if line.session else ""
            packed.append(_ENCODER.encode(line) + b"\n")
            if perf_counter() >= slice_ends:
                yield packed
                packed = []
                sleep(PAUSE_S)
                slice_ends = perf_counter() + SLICE_S
        if packed:
            yield packed

    def _clean(self) -> None:
        """Adopts another secret, and deletes old recordings now and then. Raises OSError."""
        if self._switch.secret != self._secret:
            self._secret = self._switch.secret
            self._disguise = Disguise(self._secret)
            self._files.hide_behind(self._disguise.secret)
        if perf_counter() - self._cleaned_at < CLEAN_S:
            return
        self._cleaned_at = perf_counter()
        self._files.end_old(self.now)
        delete_old(self._path, self._live.settings.record_days, self.now)

    def _lost(self, why: str, lines: Sequence[Record | FleetState]) -> None:
        requests = sum(isinstance(line, Record) for line in lines)
        self.unrecorded += requests
        self._metrics.not_recorded.inc(requests)
        self._log(why, error=why)


_ENCODER = msgspec.json.Encoder()


def _size(line: Record | FleetState) -> int:
    """In memory, about."""
    if isinstance(line, Record):
        return RECORD_BYTES + len(line.keys)
    return RECORD_BYTES * (1 + sum(len(pool.measured) for pool in line.pools.values()))
