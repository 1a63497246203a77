"""`PageStreams`: copies of pages between a GPU and pinned host memory while the model runs.

Only the part inside the device runs in the model's stream: gathering pages before they are
overwritten, and scattering those that have arrived, each layer's just before the layer uses them.
The slow part, over the bus, has a stream for each direction: stores run in parallel with the model
that follows them, and loads start at once, in parallel with the model that is still running.

Between both parts are staging buffers, some for each direction, used in turn. A store waits for the
buffer that it takes, not for the stores before it. Loads and stores wait for each other only if
they use the same host pages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import PageCopies
from pando_worker.memory.page_allocator import Pages
from pando_worker.rates import Rate
from pando_worker.tensors.transfer import to_device

BUFFERS = 4  # of each direction


class Group(Protocol):
    """Layers whose part of a page crosses the bus in one piece."""

    words: int
    host: Tensor  # [num_host_pages, words], pinned

    def gather(self, index: Tensor, out: Tensor) -> None: ...

    def scatter(self, index: Tensor, rows: Tensor) -> None: ...


@dataclass(slots=True)
class _Buffer:
    rows: list[Tensor]  # of each group, [pages, words]
    free: torch.cuda.Event  # after which it may be overwritten


@dataclass(slots=True)
class _Arriving:
    """A load whose pages are not all in the device's pool."""

    buffer: _Buffer
    index: Tensor  # device pages, int64 [count], on the device
    arrived: list[torch.cuda.Event]  # for each group, after which it is in the buffer
    missing: set[int]  # groups that have not been scattered


@dataclass(frozen=True, slots=True)
class _Crossing:
    """A copy that may still be on the bus."""

    host: Pages
    started: torch.cuda.Event
    ended: torch.cuda.Event


@dataclass(slots=True)
class _Direction:
    stream: torch.cuda.Stream
    buffers: list[_Buffer]
    crossing: list[_Crossing] = field(default_factory=list)
    turn: int = 0

    def next_buffer(self) -> _Buffer:
        buffer = self.buffers[self.turn]
        self.turn = (self.turn + 1) % len(self.buffers)
        return buffer

    def wait_for(self, other: "_Direction", host: Pages) -> None:
        """Let later copies of these host pages wait for those of the other direction."""
        for crossing in other.crossing:
            if np.isin(host, crossing.host).any():
                self.stream.wait_event(crossing.ended)


class PageStreams:
    def __init__(self, groups: Sequence[Group], staged_pages: int, device: torch.device) -> None:
        """
        Args:
            staged_pages: for which there is memory in each direction, at least one per buffer
        """
        self._groups, self._device = groups, device
        self._pages = max(1, staged_pages // BUFFERS)  # in a buffer
        free = _record(torch.cuda.current_stream(device))

        def direction() -> _Direction:
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            rows = [[self._rows(group) for group in groups] for _ in range(BUFFERS)]
            return _Direction(stream, [_Buffer(each, free) for each in rows])

        self._out, self._in = direction(), direction()
        self._arriving: list[_Arriving] = []

    @property
    def staging_bytes(self) -> int:
        """Of each direction."""
        return sum(rows.nbytes for buffer in self._in.buffers for rows in buffer.rows)

    def copy(self, stores: PageCopies | None, loads: PageCopies | None) -> None:
        """Start a batch's copies."""
        for group in range(len(self._groups)):
            self.arrive(group)
        for host, device in self._portions(stores):
            self._store(host, device)
        for host, device in self._portions(loads):
            self._load(host, device)

    def arrive(self, group: int) -> None:
        """Later work on the model's stream sees what has been loaded of a group."""
        for load in list(self._arriving):
            self._scatter(load, group)

    def measure(self, rate: Rate, page_bytes: int) -> None:
        """Count the copies that have ended since the last call, without waiting."""
        for direction in (self._out, self._in):
            while direction.crossing and direction.crossing[0].ended.query():  # type: ignore[no-untyped-call]
                done = direction.crossing.pop(0)
                seconds = done.started.elapsed_time(done.ended) / 1000
                rate.add(len(done.host) * page_bytes, seconds)

    def _store(self, host: Pages, device: Pages) -> None:
        compute, out = torch.cuda.current_stream(self._device), self._out
        buffer, index = out.next_buffer(), to_device(device.astype(np.int64), self._device)
        compute.wait_event(buffer.free)
        for group, rows in zip(self._groups, buffer.rows, strict=True):
            group.gather(index, rows[: len(host)])
        out.stream.wait_event(_record(compute))
        out.wait_for(self._in, host)  # they may still read these host pages
        with torch.cuda.stream(out.stream):
            started = _record(out.stream, timed=True)
            for group, rows in zip(self._groups, buffer.rows, strict=True):
                for row, start, end in _runs(host):
                    group.host[start:end].copy_(rows[row : row + end - start], non_blocking=True)
            buffer.free = _record(out.stream, timed=True)
        out.crossing.append(_Crossing(host, started, buffer.free))

    def _load(self, host: Pages, device: Pages) -> None:
        inward, buffer = self._in, self._in.next_buffer()
        for load in list(self._arriving):  # more pages than there is staging memory for
            if load.buffer is buffer:
                for number in range(len(self._groups)):
                    self._scatter(load, number)
        inward.stream.wait_event(buffer.free)
        inward.wait_for(self._out, host)
        arrived = []
        with torch.cuda.stream(inward.stream):
            started = _record(inward.stream, timed=True)
            for group, rows in zip(self._groups, buffer.rows, strict=True):
                for row, start, end in _runs(host):
                    rows[row : row + end - start].copy_(group.host[start:end], non_blocking=True)
                arrived.append(_record(inward.stream, timed=True))
        inward.crossing.append(_Crossing(host, started, arrived[-1]))
        index = to_device(device.astype(np.int64), self._device)
        self._arriving.append(_Arriving(buffer, index, arrived, set(range(len(self._groups)))))

    def _scatter(self, load: _Arriving, group: int) -> None:
        """Move what has arrived of a group to the device's pool, unless that has been done."""
        if group not in load.missing:
            return
        compute = torch.cuda.current_stream(self._device)
        compute.wait_event(load.arrived[group])
        self._groups[group].scatter(load.index, load.buffer.rows[group][: len(load.index)])
        load.missing.remove(group)
        if not load.missing:
            load.buffer.free = _record(compute)
            self._arriving.remove(load)

    def _portions(self, copies: PageCopies | None) -> list[tuple[Pages, Pages]]:
        """Host and device pages, ordered by host page, in parts that fit a buffer."""
        if copies is None:
            return []
        order = np.argsort(copies.host)
        host, device = copies.host[order], copies.device[order]
        cuts = list(range(self._pages, len(host), self._pages))
        return list(zip(np.split(host, cuts), np.split(device, cuts), strict=True))

    def _rows(self, group: Group) -> Tensor:
        return torch.empty((self._pages, group.words), dtype=group.host.dtype, device=self._device)


def _record(stream: torch.cuda.Stream, timed: bool = False) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=timed)  # type: ignore[no-untyped-call]
    event.record(stream)
    return event


def _runs(pages: Pages) -> list[tuple[int, int, int]]:
    """Runs of ascending pages: a run's index in `pages`, its first page, its last page + 1."""
    starts = np.flatnonzero(np.diff(pages, prepend=-2) != 1).tolist()
    ends = [*starts[1:], len(pages)]
    return [
        (start, int(pages[start]), int(pages[start]) + end - start)
        for start, end in zip(starts, ends, strict=True)
    ]
