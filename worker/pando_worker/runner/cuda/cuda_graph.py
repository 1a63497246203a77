"""`CudaGraphRunner`: runs decode steps as CUDA graphs, one for each of a list of batch sizes.

A step of a large model launches hundreds of kernels. From Python this takes longer than a GPU needs
for a small batch. A graph launches them all at once, but always the same kernels on the same
memory. So a batch is padded to the next size that has a graph, its arrays are copied to the graph's
inputs, and attention is planned again before each replay. Padding rows have one token, in a page
that no request owns.

Graphs are captured at the start, the largest first, so that the smaller ones can reuse its memory.
A graph ends with the hidden states; the head and the sampling run as in any other step.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend
from pando_worker.batch import ForwardBatch, Int32
from pando_worker.progress import Report, Stage, unreported
from pando_worker.runner.cuda.capture import Capture
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.runner.trial import trial_batch

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


class FixedAttention(Protocol):
    """An attention backend's interface for graphs."""

    def at(self, rows: int) -> AttentionBackend:
        """A backend for batches of `rows` decodes whose `forward` always launches the same
        kernels."""
        ...

    def takes(self, batch: ForwardBatch, rows: int) -> bool:
        """Whether a batch of decodes, padded to `rows`, can and should run with such a backend."""
        ...


class Padding(NamedTuple):
    """What padding rows use, which no request owns.

    Attributes:
        page: of the KV pool
        window_page: of the window layers' pool; None if all layers share one
        row: of the attention's page tables
    """

    page: int
    window_page: int | None = None
    row: int = 0

    @property
    def pages(self) -> dict[bool, int]:
        """By whether layers release pages behind their window."""
        if self.window_page is None:
            return {False: self.page}
        return {False: self.page, True: self.window_page}


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
        inputs: GraphInputs,
        *,
        sizes: Sequence[int],
        page_size: int,
        padding: Padding,
        capture: Capture,
        report: Report = unreported,
    ) -> None:
        """Captures all graphs; for a model with adapters each size has a second one, for steps with
        any of them.

        Args:
            capture: `CudaCapture`; tests pass one that repeats the calls
            report: called with the share of the graphs that it has
        """
        self.sizes = sorted(sizes)
        self._model, self._futures, self._attention = model, futures, attention
        self._page_size = page_size
        self._padding = padding
        self._inputs = inputs
        self._graphs: dict[tuple[int, bool], _Graph] = {}
        for number, rows in enumerate(reversed(self.sizes), start=1):
            for adapted in inputs.kinds(rows):
                self._graphs[rows, adapted] = self._captured(rows, capture)
            report(Stage.GRAPHS, number / len(self.sizes))

    def run(self, batch: ForwardBatch) -> Tensor | None:
        """Logits of all rows, float32 [rows, vocab_size]; None if no graph fits the batch. Called
        in torch's inference mode."""
        rows = len(batch.seq_lens)
        if rows > self.sizes[-1] or len(batch.input_ids) != rows:
            return None
        size = self.sizes[bisect_left(self.sizes, rows)]
        if not self._attention.takes(batch, size):
            return None
        graph = self._graphs[size, self._inputs.fill_adapters()]
        self._fill(padded(batch, size, self._padding), graph.attention)
        graph.replay()
        return self._model.logits(graph.hidden[:rows])

    @torch.inference_mode()
    def _captured(self, rows: int, capture: Capture) -> _Graph:
        attention = self._attention.at(rows)
        ids, positions = self._inputs.of(rows)
        self._fill(_nobodys(rows, self._page_size, self._padding), attention)

        def run() -> Tensor:
            return self._model(self._futures.resolve_on_device(ids), positions, attention)

        replay, hidden = capture(run)
        return _Graph(attention, replay, hidden)

    def _fill(self, batch: ForwardBatch, attention: AttentionBackend) -> None:
        attention.plan(batch)
        self._inputs.fill(len(batch.seq_lens), batch.input_ids, batch.positions)


@lru_cache  # most steps are padded
def _nobodys(rows: int, page_size: int, padding: Padding) -> ForwardBatch:
    """Decodes that all use the first slot of the padding pages. They must not change."""
    batch = trial_batch(cached=0, extend=1, page_size=page_size, rows=rows, page=padding.page)
    batch.req_rows += padding.row
    if padding.window_page is None:
        return batch
    page = padding.window_page
    windows = trial_batch(cached=0, extend=1, page_size=page_size, rows=rows, page=page)
    return replace(batch, window_table=windows.page_table, window_slots=windows.out_slots)


def padded(batch: ForwardBatch, rows: int, padding: Padding) -> ForwardBatch:
    """A batch of decodes, padded to `rows` rows with those of nobody.

    The fields that a sampler reads are unchanged. So are the page tables of a batch with
    `page_changes`, as attention has its own, where `padding.row` is the added rows'.
    """
    more = rows - len(batch.seq_lens)
    if more == 0:
        return batch
    assert (padding.window_page is None) == (batch.window_table is None)
    nobodys = _nobodys(more, batch.page_size, padding)

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
        req_rows=joined(batch.req_rows, nobodys.req_rows),
    )
    if batch.window_slots is not None and nobodys.window_slots is not None:
        whole.window_slots = joined(batch.window_slots, nobodys.window_slots)
    if batch.page_changes is not None:
        return whole
    whole.page_table = table(batch.page_table, nobodys.page_table)
    if batch.window_table is not None and nobodys.window_table is not None:
        whole.window_table = table(batch.window_table, nobodys.window_table)
    return whole
