"""Times FlashAttention 2 and 3 on a device, for the table that the worker chooses kernels by."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, LayerKV
from pando_worker.attention.flashinfer.calls import KernelCall, Memory, PinnedRows, Role, new_indptr
from pando_worker.attention.flashinfer.kernel_choice import Heads, KernelTable, Measured, Point
from pando_worker.attention.flashinfer.kind import AttentionKind, Formats, has_fa3, workspace_bytes
from pando_worker.attention.flashinfer.library import FlashinferUnavailable, Library
from pando_worker.attention.paged_rows import PagedRows
from pando_worker.attention.staging import Staging

PAGE_SIZE = 16
MOST_TOKENS = 2**20  # of all rows' keys; of 8 heads of 128 in bfloat16 4 GiB
ROUNDS = 5
# Of one GPU's share: Llama 3 8B alone and on 2, 4 and 8 GPUs, Qwen3 30B-A3B, Gemma 3.
HEADS = [
    Heads(32, 8, 128, 128),
    Heads(16, 4, 128, 128),
    Heads(8, 2, 128, 128),
    Heads(4, 1, 128, 128),
    Heads(32, 4, 128, 128),
    Heads(8, 4, 256, 256),
]
GRID = [
    (rows, new, new + cached)
    for rows in (1, 4, 16, 64)
    for new in (4, 16, 64, 256, 1024, 4096)
    for cached in (0, 1024, 8192, 65536)
]


class Bench:
    """Both kernels for one shape of heads."""

    def __init__(
        self, heads: Heads, most_tokens: int, device: torch.device, library: Library
    ) -> None:
        layer = AttentionLayer(
            index=0,
            heads=heads.heads,
            kv_heads=heads.kv_heads,
            head_dim=heads.head_dim,
            v_head_dim=heads.v_head_dim,
            scale=heads.head_dim**-0.5,
        )
        self._device, self._heads = device, heads
        kind, formats = AttentionKind.of(layer), Formats(torch.bfloat16, torch.bfloat16, PAGE_SIZE)
        if not has_fa3(kind, formats, device):
            raise FlashinferUnavailable(
                f"there is nothing to choose: FlashAttention 3 does not run heads of"
                f" {heads.head_dim} and {heads.v_head_dim} on this device"
            )
        multiprocessors = (
            torch.cuda.get_device_properties(device).multi_processor_count
            if device.type == "cuda"
            else 1
        )
        size = workspace_bytes([kind], 1, multiprocessors)
        workspace = torch.zeros(size, dtype=torch.uint8, device=device)
        self._calls = [
            KernelCall(library, kind, Role.EXTEND, formats, Memory.new(workspace), is_fa3=is_fa3)
            for is_fa3 in (False, True)
        ]
        self._pages = -(-most_tokens // PAGE_SIZE)
        shape = self._pages, PAGE_SIZE, heads.kv_heads

        def random(width: int) -> Tensor:
            return torch.randn(*shape, width, device=device, dtype=torch.bfloat16)

        self._paged = LayerKV(random(heads.head_dim), random(heads.v_head_dim))

    def point(self, rows: int, new: int, keys: int) -> Point:
        """Medians of some rounds, after one that compiles."""
        fa2_us, fa3_us = (self._microseconds(call, rows, new, keys) for call in self._calls)
        return Point(rows=rows, new=new, keys=keys, fa2_us=fa2_us, fa3_us=fa3_us)

    def _microseconds(self, call: KernelCall, rows: int, new: int, keys: int) -> float:
        pages = -(-keys // PAGE_SIZE)
        paged = PagedRows.zeros(rows)
        paged.fill(np.full(rows, keys, dtype=np.int32), PAGE_SIZE)
        # Scattered, as those of a cache.
        order = torch.randperm(self._pages, device=self._device)[: rows * pages]
        starts = new_indptr(np.full(rows, new, dtype=np.int32))
        staged = PinnedRows.of(paged, starts, Staging(self._device))
        call.plan(staged, order.to(torch.int32))
        heads = self._heads
        q = torch.randn(
            rows * new, heads.heads, heads.head_dim, device=self._device, dtype=torch.bfloat16
        )
        out = q.new_empty(len(q), heads.heads, heads.v_head_dim)
        return statistics.median(
            [
                _timed(lambda: call.run(q, self._paged, None, out), self._device)
                for _ in range(ROUNDS + 1)
            ][1:]
        )


def tune(
    device: torch.device,
    library: Library,
    *,
    shapes: Sequence[Heads] = tuple(HEADS),
    grid: Sequence[tuple[int, int, int]] = tuple(GRID),
    most_tokens: int = MOST_TOKENS,
) -> KernelTable:
    """
    Args:
        grid: rows, new tokens and keys of each; those that need more than `most_tokens` keys are
            left out

    Raises:
        FlashinferUnavailable: FlashAttention 3 does not run on the device, or not these shapes.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return KernelTable(
        device=name,
        measured=[
            Measured(heads, list(_points(heads, device, library, grid, most_tokens)))
            for heads in shapes
        ],
    )


def _points(
    heads: Heads,
    device: torch.device,
    library: Library,
    grid: Sequence[tuple[int, int, int]],
    most_tokens: int,
) -> Iterator[Point]:
    bench = Bench(heads, most_tokens, device, library)
    for rows, new, keys in grid:
        if rows * (keys + PAGE_SIZE) <= most_tokens:
            yield bench.point(rows, new, keys)


def _timed(run: Callable[[], None], device: torch.device) -> float:
    """Microseconds."""
    if device.type != "cuda":
        started = time.perf_counter()
        run()
        return 1e6 * (time.perf_counter() - started)
    begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    begin.record()
    run()
    end.record()
    end.synchronize()
    return 1e3 * float(begin.elapsed_time(end))
