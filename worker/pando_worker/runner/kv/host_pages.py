"""`HostPages`: keys and values in host memory, and copies between it and the device's pool.

A host page holds a page of all its layers. Layers are in groups, each with its own host memory: a
group of a page crosses the bus in one piece, and the first layers can run while those of the other
groups still arrive.

On the CPU a copy is complete when `copy` returns. On a GPU see `page_streams.py`.
"""

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import PageCopies
from pando_worker.rates import Rate
from pando_worker.runner.kv.page_streams import PageStreams
from pando_worker.tensors.pinned import pinned_empty

# Pages are copied as words: measured on a CPU, torch scatters bytes 13 times more slowly.
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
# Smaller pieces would waste the bus: launching a copy takes some 3 us, in which PCIe 5 moves this.
PIECE_BYTES = 128 * 2**10


class LayerGroup:
    """Pages of some layers, on the device and on the host."""

    def __init__(self, parts: Sequence[Tensor], num_host_pages: int, pinned: bool) -> None:
        """
        Args:
            parts: keys and values on the device, [num_device_pages, words of a page]

        Raises:
            PinningFailed
        """
        self._parts = parts
        self._ends: list[int] = np.cumsum([part.shape[1] for part in parts]).tolist()
        self.words = self._ends[-1]  # of a page
        shape = (num_host_pages, self.words)
        dtype = parts[0].dtype
        self.host = pinned_empty(shape, dtype) if pinned else torch.empty(shape, dtype=dtype)

    def gather(self, index: Tensor, out: Tensor) -> None:
        """Copy pages of the device's pool to `out`, [count, words], on the device."""
        start = 0
        for part, end in zip(self._parts, self._ends, strict=True):
            out[:, start:end] = part.index_select(0, index)
            start = end

    def scatter(self, index: Tensor, rows: Tensor) -> None:
        """The reverse of `gather`."""
        start = 0
        for part, end in zip(self._parts, self._ends, strict=True):
            part[index] = rows[:, start:end]
            start = end


class HostPages:
    """Host pages of layers that share their page numbers."""

    def __init__(
        self,
        layers: Mapping[int, Sequence[Tensor]],
        page_size: int,
        num_pages: int,
        rate: Rate,
        staged_pages: int,
        on_gpu: bool,
    ) -> None:
        """
        Args:
            layers: keys and values on the device, [num_slots, ...] each, by layer; may be empty
            num_pages: of the host
            rate: counts copied bytes
            staged_pages: pages for which there is staging memory in each direction
            on_gpu: whether the layers are on a GPU

        Raises:
            PinningFailed
        """
        pages = {
            index: [_pages(part, page_size) for part in parts] for index, parts in layers.items()
        }
        sizes = [part.shape[1] for parts in pages.values() for part in parts]
        word = math.gcd(8, *sizes)
        self.page_bytes = sum(sizes)
        self._device = next((part.device for parts in layers.values() for part in parts), None)
        self._groups: list[LayerGroup] = []
        self._group_of: dict[int, int] = {}
        for members in _grouped({i: sum(p.shape[1] for p in parts) for i, parts in pages.items()}):
            self._group_of |= dict.fromkeys(members, len(self._groups))
            parts = [part.view(_WORDS[word]) for index in members for part in pages[index]]
            self._groups.append(LayerGroup(parts, num_pages, pinned=on_gpu))
        self._rate = rate
        self._streams: PageStreams | None = None
        if on_gpu and num_pages and self._device is not None:
            staged = max(1, min(num_pages, staged_pages))
            self._streams = PageStreams(self._groups, staged, self._device)

    @property
    def pinned_bytes(self) -> int:
        return sum(group.host.nbytes for group in self._groups) if self._streams else 0

    @property
    def staging_bytes(self) -> int:
        """Of the device, in each direction."""
        return self._streams.staging_bytes if self._streams else 0

    @torch.inference_mode()
    def copy(self, stores: PageCopies | None, loads: PageCopies | None) -> None:
        """Start a batch's copies. Later work on the model's stream sees their results; for a
        layer's loads after `arrive`."""
        if not self._groups:
            return
        if self._streams is not None:
            self._streams.copy(stores, loads)
            self._streams.measure(self._rate, self.page_bytes)
            return
        started, copied = time.perf_counter(), 0
        for copies, store in ((stores, True), (loads, False)):
            if copies is None:
                continue
            copied += len(copies.host)
            host = torch.from_numpy(copies.host.astype(np.int64))
            index = torch.from_numpy(copies.device.astype(np.int64))
            for group in self._groups:
                if store:
                    rows = group.host.new_empty(len(host), group.words)
                    group.gather(index, rows)
                    group.host[host] = rows
                else:
                    group.scatter(index, group.host[host])
        if copied:
            self._rate.add(copied * self.page_bytes, time.perf_counter() - started)

    def arrive(self, layer: int) -> None:
        """Later work on the model's stream sees the loads of this layer, if it is one of these."""
        if self._streams is not None and (group := self._group_of.get(layer)) is not None:
            self._streams.arrive(group)


def _pages(part: Tensor, page_size: int) -> Tensor:
    """[num_pages, bytes of a page]"""
    octets = part.view(torch.uint8)
    return octets.view(octets.shape[0] // page_size, -1)


def _grouped(sizes: Mapping[int, int]) -> list[list[int]]:
    """Successive layers with at least `PIECE_BYTES` in a page, together; fewer only if all have.

    Args:
        sizes: bytes of each layer in a page
    """
    groups: list[list[int]] = []
    held = PIECE_BYTES
    for layer, size in sizes.items():
        if held >= PIECE_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(layer)
        held += size
    if len(groups) > 1 and held < PIECE_BYTES:
        rest = groups.pop()
        groups[-1] += rest
    return groups
