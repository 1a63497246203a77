"""`CudaGraphRunner`: decode steps as CUDA graphs, one for each of a list of batch sizes.

A step of a large model starts hundreds of kernels, and from Python that takes longer than a GPU
needs for a small batch. A graph starts them all at once, but always the same ones on the same
memory: so a batch is padded to the next size that there is a graph for, its arrays are copied to
where the graph reads them, and attention is planned anew before each replay. Padding rows have one
token, in a page that no request owns.

Graphs are captured at the start, the largest first, so that the smaller ones fit into its memory.
What a graph holds ends with the hidden states: the head and the sampling run as in any other step.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend
from pando_worker.batch import ForwardBatch, Int32
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.runner.trial import trial_batch
from pando_worker.tensors.transfer import pinned

log = logging.getLogger("pando.worker.cuda")

Scalar = TypeVar("Scalar", bound=np.generic)


class Model(Protocol):
    def __call__(
        self, input_ids: Tensor, positions: Tensor, attention: AttentionBackend, /
    ) -> Tensor:
        """Final hidden states, [rows, hidden_size], of ids and positions, [rows] each."""
        ...

    def logits(self, hidden: Tensor, /) -> Tensor:
        """Of hidden states [rows, hidden_size]; float32 [rows, vocab_size]."""
        ...


class Capture(Protocol):
    def __call__(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """A function that repeats what `run` does, and the memory in which it leaves its result."""
        ...


class FixedAttention(Protocol):
    """What an attention backend offers to graphs."""

    def at(self, rows: int) -> AttentionBackend:
        """A backend for batches of `rows` decodes, whose `forward` always does the same."""
        ...

    def takes(self, batch: ForwardBatch) -> bool:
        """Whether a batch of decodes may run in those, and had better."""
        ...


@dataclass(frozen=True, slots=True)
class _Graph:
    attention: AttentionBackend
    replay: Callable[[], None]
    hidden: Tensor  # [rows, hidden_size]


def graph_sizes(most: int) -> list[int]:
    """Batch sizes up to `most`, ascending: every eighth up to 64, every sixteenth beyond, and a few
    small ones. Padding costs little where a step waits for the weights anyway."""
    some = [1, 2, 4, *range(8, 64, 8), *range(64, most + 16, 16)]
    return sorted({min(size, most) for size in some if size < most + 16}) if most else []


class CudaGraphRunner:
    """
    Attributes:
        sizes: of batches that there are graphs for, ascending
    """

    def __init__(
        self,
        model: Model,
        attention: FixedAttention,
        futures: FutureTokens,
        device: torch.device,
        *,
        sizes: Sequence[int],
        page_size: int,
        padding_page: int,
        window_padding_page: int | None = None,
        capture: Capture,
    ) -> None:
        """Captures all graphs.

        Args:
            padding_page: of the KV pool, which nobody owns
            window_padding_page: likewise of the window layers' own pool; None where all share one
            capture: `CudaCapture`, or in tests something that repeats the calls
        """
        self.sizes = sorted(sizes)
        self._model, self._futures, self._attention = model, futures, attention
        self._page_size = page_size
        self._padding = padding_page, window_padding_page
        self._device = device
        self._ids = torch.zeros(self.sizes[-1], dtype=torch.int64, device=device)
        self._positions = torch.zeros_like(self._ids)
        self._graphs: dict[int, _Graph] = {}
        started = time.monotonic()
        for number, rows in enumerate(reversed(self.sizes), start=1):
            self._graphs[rows] = self._captured(rows, model, capture)
            log.info("captured CUDA graph %d of %d: %d rows", number, len(self.sizes), rows)
        log.info("captured all CUDA graphs in %.1f s", time.monotonic() - started)

    def run(self, batch: ForwardBatch) -> Tensor | None:
        """Logits of all rows, float32 [rows, vocab_size]; None where it is no batch for a graph."""
        rows = len(batch.seq_lens)
        if rows > self.sizes[-1] or len(batch.input_ids) != rows:
            return None
        if not self._attention.takes(batch):
            return None
        size = next(size for size in self.sizes if size >= rows)
        graph = self._graphs[size]
        self._fill(padded(batch, size, *self._padding), graph.attention)
        graph.replay()
        return self._model.logits(graph.hidden[:rows])

    @torch.inference_mode()
    def _captured(self, rows: int, model: Model, capture: Capture) -> _Graph:
        attention = self._attention.at(rows)
        self._fill(_nobodys(rows, self._page_size, *self._padding), attention)
        ids, positions = self._ids[:rows], self._positions[:rows]

        def run() -> Tensor:
            return model(self._futures.resolve_on_device(ids), positions, attention)

        replay, hidden = capture(run)
        return _Graph(attention, replay, hidden)

    @torch.inference_mode()
    def _fill(self, batch: ForwardBatch, attention: AttentionBackend) -> None:
        attention.plan(batch)
        rows = len(batch.seq_lens)
        self._ids[:rows].copy_(pinned(batch.input_ids, self._device), non_blocking=True)
        self._positions[:rows].copy_(pinned(batch.positions, self._device), non_blocking=True)


class CudaCapture:
    """Captures into CUDA graphs that share their memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        # Kernels are compiled and loaded, and libraries take their memory, where nothing is
        # recorded yet; with several ranks, they meet.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as NCCL's, go on with what would disturb a capture that is global.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            result = run()
        return graph.replay, result


def _nobodys(rows: int, page_size: int, page: int, window_page: int | None) -> ForwardBatch:
    """Decodes that all lie in the first slot of `page`, and of `window_page` if there are such."""
    batch = trial_batch(cached=0, extend=1, page_size=page_size, rows=rows, page=page)
    if window_page is None:
        return batch
    windows = trial_batch(cached=0, extend=1, page_size=page_size, rows=rows, page=window_page)
    return replace(batch, window_table=windows.page_table, window_slots=windows.out_slots)


def padded(
    batch: ForwardBatch, rows: int, page: int, window_page: int | None = None
) -> ForwardBatch:
    """A batch of decodes with rows added, up to `rows`, that lie in the first slot of `page`, and
    of `window_page` where the batch has window pages.

    What a sampler takes from a batch stays as it is.
    """
    more = rows - len(batch.seq_lens)
    if more == 0:
        return batch
    assert (window_page is None) == (batch.window_table is None)
    nobodys = _nobodys(more, batch.page_size, page, window_page)

    def joined(first: NDArray[Scalar], second: NDArray[Scalar]) -> NDArray[Scalar]:
        return np.concatenate((first, second))

    def table(first: Int32, second: Int32) -> Int32:
        return np.concatenate((first, np.repeat(second, first.shape[1], axis=1)))

    whole = replace(
        batch,
        input_ids=joined(batch.input_ids, nobodys.input_ids),
        positions=joined(batch.positions, nobodys.positions),
        out_slots=joined(batch.out_slots, nobodys.out_slots),
        extend_lens=joined(batch.extend_lens, nobodys.extend_lens),
        seq_lens=joined(batch.seq_lens, nobodys.seq_lens),
        page_table=table(batch.page_table, nobodys.page_table),
    )
    if batch.window_table is not None and nobodys.window_table is not None:
        whole.window_table = table(batch.window_table, nobodys.window_table)
    if batch.window_slots is not None and nobodys.window_slots is not None:
        whole.window_slots = joined(batch.window_slots, nobodys.window_slots)
    return whole
