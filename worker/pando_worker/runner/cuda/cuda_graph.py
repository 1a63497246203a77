"""`CudaGraphRunner`: runs decode steps as CUDA graphs, one for each of a list of batch sizes.

A step of a large model launches hundreds of kernels. From Python this takes longer than a GPU needs
for a small batch. A graph launches them all at once, but always the same kernels on the same
memory. So a batch is padded to the next size that has a graph, its arrays are copied to the graph's
inputs, and attention is planned again before each replay. Padding rows have one token, in a page
that no request owns.

Graphs are captured at the start, the largest first, so that the smaller ones can reuse its memory.
A graph ends with the hidden states; the head and the sampling run as in any other step.
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
from pando_worker.models.lora import LoraMemory, LoraTokens
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.runner.trial import trial_batch
from pando_worker.tensors.transfer import pinned

log = logging.getLogger("pando.worker.cuda")

Scalar = TypeVar("Scalar", bound=np.generic)


class Model(Protocol):
    def __call__(
        self, input_ids: Tensor, positions: Tensor, attention: AttentionBackend, /
    ) -> Tensor:
        """Final hidden states, [rows, hidden_size], for ids and positions, [rows] each."""
        ...

    def logits(self, hidden: Tensor, /) -> Tensor:
        """Logits of hidden states [rows, hidden_size]: float32 [rows, vocab_size]."""
        ...


class Capture(Protocol):
    def __call__(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """A function that repeats `run`, and the memory that holds its result."""
        ...


class FixedAttention(Protocol):
    """An attention backend's interface for graphs."""

    def at(self, rows: int) -> AttentionBackend:
        """A backend for batches of `rows` decodes whose `forward` always launches the same
        kernels."""
        ...

    def takes(self, batch: ForwardBatch, rows: int) -> bool:
        """Whether a batch of decodes, padded to `rows`, can and should run with such a backend."""
        ...


@dataclass(frozen=True, slots=True)
class _Graph:
    attention: AttentionBackend
    replay: Callable[[], None]
    hidden: Tensor  # [rows, hidden_size]


def graph_sizes(most: int) -> list[int]:
    """Batch sizes up to `most`, ascending: a few small ones, multiples of 8 up to 64, then
    multiples of 16. Padding costs little, as such a step mostly waits for the weights."""
    some = [1, 2, 4, *range(8, 64, 8), *range(64, most + 16, 16)]
    return sorted({min(size, most) for size in some if size < most + 16}) if most else []


class CudaGraphRunner:
    """
    Attributes:
        sizes: batch sizes that have a graph, ascending
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
        lora: LoraMemory | None = None,
    ) -> None:
        """Captures all graphs.

        Args:
            padding_page: a page of the KV pool that no request owns
            window_padding_page: the same for the window layers' pool; None if all layers share one
            capture: `CudaCapture`; tests pass one that repeats the calls
            lora: of the model, if it has adapters; then each size has a second graph, for steps
                with any of them
        """
        self.sizes = sorted(sizes)
        self._model, self._futures, self._attention = model, futures, attention
        self._page_size = page_size
        self._padding = padding_page, window_padding_page
        self._device = device
        self._ids = torch.zeros(self.sizes[-1], dtype=torch.int64, device=device)
        self._positions = torch.zeros_like(self._ids)
        self._lora = lora
        tokens, slots = torch.zeros(2, self.sizes[-1], dtype=torch.int32, device=device)
        self._tokens = LoraTokens(tokens, slots, torch.zeros(1, dtype=torch.int32, device=device))
        self._graphs: dict[tuple[int, bool], _Graph] = {}
        started = time.monotonic()
        for number, rows in enumerate(reversed(self.sizes), start=1):
            for adapted in (False, True)[: 1 if lora is None else 2]:
                self._graphs[rows, adapted] = self._captured(rows, adapted, model, capture)
            log.info("captured CUDA graph %d of %d: %d rows", number, len(self.sizes), rows)
        log.info("captured all CUDA graphs in %.1f s", time.monotonic() - started)

    def run(self, batch: ForwardBatch) -> Tensor | None:
        """Logits of all rows, float32 [rows, vocab_size]; None if no graph fits the batch."""
        rows = len(batch.seq_lens)
        if rows > self.sizes[-1] or len(batch.input_ids) != rows:
            return None
        size = next(size for size in self.sizes if size >= rows)
        if not self._attention.takes(batch, size):
            return None
        step = None if self._lora is None else self._lora.step
        graph = self._graphs[size, step is not None]
        self._fill(padded(batch, size, *self._padding), graph.attention)
        if step is not None:
            self._tokens.tokens[: len(step.tokens)].copy_(step.tokens)
            self._tokens.slots[: len(step.slots)].copy_(step.slots)
            self._tokens.count.copy_(step.count)
        graph.replay()
        return self._model.logits(graph.hidden[:rows])

    @torch.inference_mode()
    def _captured(self, rows: int, adapted: bool, model: Model, capture: Capture) -> _Graph:
        attention = self._attention.at(rows)
        self._fill(_nobodys(rows, self._page_size, *self._padding), attention)
        ids, positions = self._ids[:rows], self._positions[:rows]

        def run() -> Tensor:
            return model(self._futures.resolve_on_device(ids), positions, attention)

        if self._lora is not None:
            tokens, slots, count = self._tokens.tokens, self._tokens.slots, self._tokens.count
            self._lora.step = LoraTokens(tokens[:rows], slots[:rows], count) if adapted else None
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
        # A first run outside the capture compiles and loads kernels, lets libraries allocate their
        # memory, and synchronises the ranks.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Not a global capture: other threads, such as NCCL's, make calls that would break it.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            result = run()
        return graph.replay, result


def _nobodys(rows: int, page_size: int, page: int, window_page: int | None) -> ForwardBatch:
    """Decodes that all use the first slot of `page`, and of `window_page` if there is one."""
    batch = trial_batch(cached=0, extend=1, page_size=page_size, rows=rows, page=page)
    if window_page is None:
        return batch
    windows = trial_batch(cached=0, extend=1, page_size=page_size, rows=rows, page=window_page)
    return replace(batch, window_table=windows.page_table, window_slots=windows.out_slots)


def padded(
    batch: ForwardBatch, rows: int, page: int, window_page: int | None = None
) -> ForwardBatch:
    """A batch of decodes, padded to `rows` rows. Added rows use the first slot of `page`, and of
    `window_page` if the batch has window pages.

    The fields that a sampler reads are unchanged.
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
