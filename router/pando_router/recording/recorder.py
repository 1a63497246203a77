"""Records requests as they end, outside their path: a thread hides the keys and writes the lines.

The waiting records are bounded. A record that does not fit, or that the disk refuses, is dropped
and counted.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep, time

import msgspec

from pando_router.configuration.live import Live
from pando_router.configuration.settings import RouterSettings
from pando_router.exchange.exchange import Exchange, Listener, Order
from pando_router.recording.entry import record_of
from pando_router.recording.files import Files
from pando_router.recording.form import Disguise, Header, Record
from pando_router.telemetry.bounded_log import BoundedLog
from pando_router.telemetry.metrics import Metrics

EVERY_S = 0.2
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

    def __init__(self, live: Live, path: Path, part: Part, metrics: Metrics) -> None:
        self._live = live
        settings = live.settings
        self._began = time() - perf_counter()  # so that clock adjustments do not affect the trace
        self._files = Files(
            part.path(path),
            _line(Header(started=time())),
            max_bytes=settings.record_file_bytes,
            most=settings.record_files,
        )
        self._disguise = Disguise(part.secret)
        self._open: dict[Exchange, float] = {}  # start times, in the order of arrival
        self._waiting: list[Record] = []
        self._num_bytes = 0  # of records that wait or are being written
        self._writing: asyncio.Task[None] | None = None
        self._metrics = metrics
        self._log = BoundedLog("requests were not recorded", logging.ERROR)

    def body_read(self, exchange: Exchange, order: Order) -> None:
        if order.prompt.request.computes:
            exchange.keep_tail()
            self._open[exchange] = self._now()

    def ended(self, exchange: Exchange) -> None:
        at = self._open.pop(exchange, None)
        if at is None:
            return
        now = self._now()
        oldest = next(iter(self._open.values()), now)
        expected_tokens = self._live.settings.expected_output_tokens
        record = record_of(exchange, at, now, oldest, expected_tokens)
        size = RECORD_BYTES + len(record.keys)
        if self._num_bytes + size > MAX_WAITING:
            self._lost("too many wait to be written", 1)
            return
        self._num_bytes += size
        self._waiting.append(record)

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
        if self._waiting:
            self._writing = asyncio.create_task(self._write())
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        records, self._waiting = self._waiting, []
        size = sum(RECORD_BYTES + len(record.keys) for record in records)
        try:
            written, error = await asyncio.to_thread(self._hide_and_write, records)
        finally:
            self._num_bytes -= size
            self._writing = None
        self._metrics.recorded.inc(written)
        if error:
            self._lost(error, len(records) - written)

    def _hide_and_write(self, records: Sequence[Record]) -> tuple[int, str]:
        """Runs in a thread. Returns how many were written, and why the others were not."""
        slice_ends = perf_counter() + SLICE_S
        for written, record in enumerate(records):
            record.keys = self._disguise.keys(record.keys)
            record.session = self._disguise.name(record.session) if record.session else ""
            try:
                self._files.write(_line(record))
            except OSError as error:
                return written, error.strerror or str(error)
            if perf_counter() >= slice_ends:
                sleep(PAUSE_S)
                slice_ends = perf_counter() + SLICE_S
        return len(records), ""

    def _lost(self, why: str, requests: int) -> None:
        self._metrics.not_recorded.inc(requests)
        self._log(why, error=why)

    def _now(self) -> float:
        return round(self._began + perf_counter(), 6)


def _line(what: Header | Record) -> bytes:
    return msgspec.json.encode(what) + b"\n"
