"""`HostPages`: keys and values in host memory, and copies between it and the device's pool.

A host page holds a page of all its layers as one row, so that it crosses the bus in one piece.
Pages are gathered in a staging buffer of bounded size.

On the CPU a copy is complete when `copy` returns. On CUDA only the part inside the device runs in
the model's stream: gathering pages before they are overwritten, and scattering those that have
arrived. The slow part, over the bus, has a stream for each direction: stores run in parallel with
the model that follows them, and loads start at once, in parallel with the model that is still
running.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import PageCopies
from pando_worker.memory.page_allocator import Pages
from pando_worker.memory.tree_node import NO_PAGES
from pando_worker.rates import Rate
from pando_worker.tensors.transfer import to_device

# Pages are copied as words: measured on a CPU, torch scatters bytes 13 times more slowly.
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


class HostPages:
    """Host pages of layers that share their page numbers."""

    def __init__(
        self,
        parts: Sequence[Tensor],
        page_size: int,
        num_pages: int,
        rate: Rate,
        staged_pages: int,
    ) -> None:
        """
        Args:
            parts: keys and values on the device, [num_slots, ...] each; may be empty
            num_pages: of the host
            rate: counts copied bytes
            staged_pages: size of each direction's staging buffer, at most `num_pages`
        """
        pages = [_pages(part, page_size) for part in parts]
        word = math.gcd(8, *(part.shape[1] for part in pages))
        self._device = parts[0].device if parts else torch.device("cpu")
        self._dtype = _WORDS[word]
        # Keys and values of each layer, [num_device_pages, words of a page].
        self._parts = [part.view(self._dtype) for part in pages]
        self._ends: list[int] = np.cumsum([part.shape[1] for part in self._parts]).tolist()
        self._page_words = self._ends[-1] if parts else 0
        self.page_bytes = self._page_words * word
        self.staged_pages = min(num_pages, staged_pages)
        on_gpu = self._device.type == "cuda"
        self._data = torch.empty(
            (num_pages, self._page_words),
            dtype=self._dtype,
            pin_memory=on_gpu and num_pages > 0,
        )
        self._rate = rate
        self._cuda: _CudaCopies | None = None
        if on_gpu and num_pages:
            self._cuda = _CudaCopies(self._new_rows, self.staged_pages, self._device)

    @torch.inference_mode()
    def copy(self, stores: PageCopies | None, loads: PageCopies | None) -> None:
        """Start a batch's copies; later work on the model's stream sees their results."""
        if not self._parts:
            return
        started = time.perf_counter()
        pages = 0
        if self._cuda:
            self._cuda.begin(stores)
        for host, device in self._portions(stores):
            pages += len(host)
            if self._cuda:
                self._cuda.store(self, host, device)
            else:
                self._data[torch.from_numpy(host.astype(np.int64))] = self.gather(device)
        for host, device in self._portions(loads):
            pages += len(host)
            if self._cuda:
                self._cuda.load(self, host, device)
            else:
                self.scatter(device, self._data[torch.from_numpy(host.astype(np.int64))])
        if self._cuda:
            self._cuda.measure(self._rate)
        elif pages:
            self._rate.add(pages * self.page_bytes, time.perf_counter() - started)

    def gather(self, device: Pages, out: Tensor | None = None) -> Tensor:
        """Gather pages of the device's pool, [count, words of a page], on the device."""
        index = to_device(device, self._device)
        out = self._new_rows(len(device)) if out is None else out
        start = 0
        for part, end in zip(self._parts, self._ends, strict=True):
            out[:, start:end] = part.index_select(0, index)
            start = end
        return out

    def scatter(self, device: Pages, rows: Tensor) -> None:
        """The reverse of `gather`."""
        index = to_device(device.astype(np.int64), self._device)
        start = 0
        for part, end in zip(self._parts, self._ends, strict=True):
            part[index] = rows[:, start:end]
            start = end

    def _new_rows(self, count: int) -> Tensor:
        return torch.empty((count, self._page_words), dtype=self._dtype, device=self._device)

    def rows(self, start: int, end: int) -> Tensor:
        """Host pages, [end - start, words of a page]."""
        return self._data[start:end]

    def _portions(self, copies: PageCopies | None) -> list[tuple[Pages, Pages]]:
        """Host and device pages, ordered by host page, in parts that fit the staging buffer."""
        if copies is None:
            return []
        order = np.argsort(copies.host)
        host, device = copies.host[order], copies.device[order]
        cuts = list(range(self.staged_pages, len(host), self.staged_pages))
        return list(zip(np.split(host, cuts), np.split(device, cuts), strict=True))


def _pages(part: Tensor, page_size: int) -> Tensor:
    """[num_pages, bytes of a page]"""
    octets = part.view(torch.uint8)
    return octets.view(octets.shape[0] // page_size, -1)


@dataclass(frozen=True, slots=True)
class _Timed:
    started: torch.cuda.Event
    ended: torch.cuda.Event
    num_bytes: int


class _CudaCopies:
    """Streams and staging buffers. `compute` is the stream on which the model runs."""

    def __init__(
        self, new_rows: Callable[[int], Tensor], staged_pages: int, device: torch.device
    ) -> None:
        self._device = device
        self._out_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._in_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._out, self._in = new_rows(staged_pages), new_rows(staged_pages)
        # Events after which all stores, or loads, so far have left the buffer.
        self._stored = self._loaded = self._stored_before = self._record()
        self._storing: Pages = NO_PAGES
        self._timed: list[_Timed] = []

    def begin(self, stores: PageCopies | None) -> None:
        """A new batch."""
        self._stored_before = self._stored
        self._storing = stores.host if stores else NO_PAGES

    def _record(self) -> torch.cuda.Event:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def store(self, pool: HostPages, host: Pages, device: Pages) -> None:
        compute = torch.cuda.current_stream(self._device)
        compute.wait_event(self._stored)
        pool.gather(device, out=self._out[: len(device)])
        self._out_stream.wait_stream(compute)
        # An earlier load may still read a host page that this store writes.
        self._out_stream.wait_stream(self._in_stream)
        with torch.cuda.stream(self._out_stream):
            started = _now(self._out_stream)
            for row, start, end in _runs(host):
                pool.rows(start, end).copy_(self._out[row : row + end - start], non_blocking=True)
            self._timed.append(_Timed(started, _now(self._out_stream), len(host) * pool.page_bytes))
            self._stored = self._record()

    def load(self, pool: HostPages, host: Pages, device: Pages) -> None:
        compute = torch.cuda.current_stream(self._device)
        self._in_stream.wait_event(self._loaded)
        # A load waits for the previous model only if it reads what this batch stores.
        just_stored = np.isin(host, self._storing).any()
        self._in_stream.wait_event(self._stored if just_stored else self._stored_before)
        with torch.cuda.stream(self._in_stream):
            started = _now(self._in_stream)
            for row, start, end in _runs(host):
                self._in[row : row + end - start].copy_(pool.rows(start, end), non_blocking=True)
            self._timed.append(_Timed(started, _now(self._in_stream), len(host) * pool.page_bytes))
        compute.wait_stream(self._in_stream)
        pool.scatter(device, self._in[: len(device)])
        self._loaded = self._record()

    def measure(self, rate: Rate) -> None:
        """Count the copies that have ended since the last call, without waiting."""
        while self._timed and self._timed[0].ended.query():  # type: ignore[no-untyped-call]
            timed = self._timed.pop(0)
            rate.add(timed.num_bytes, timed.started.elapsed_time(timed.ended) / 1000)


def _now(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
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
