"""`CudaGraphRunner`: runs decode steps as CUDA graphs, one for each of a list of batch sizes.

A step of a large model launches hundreds of kernels. From Python this takes longer than a GPU needs
for a small batch. A graph launches them all at once, but always the same kernels on the same
memory. So a batch is padded to the next size that has a graph: before each replay its arrays are
copied to the graph's inputs and attention is planned again, both of which fill the rows behind the
batch's own with padding.

Graphs are captured at the start, the largest first, so that the smaller ones can reuse its memory.
A graph ends with the hidden states; the head and the sampling run as in any other step.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend
from pando_worker.batch import ForwardBatch
from pando_worker.progress import Report, Stage, unreported
from pando_worker.runner.cuda.capture import Capture
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.runner.trial import trial_batch


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
        """A backend for batches of up to `rows` decodes whose `forward` always launches the same
        kernels, for `rows` rows: its `plan` pads a batch with rows that no request owns."""
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
        inputs: GraphInputs,
        *,
        sizes: Sequence[int],
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
        graph.attention.plan(batch)
        self._inputs.fill(size, batch.input_ids, batch.positions)
        graph.replay()
        return self._model.logits(graph.hidden[:rows])

    @torch.inference_mode()
    def _captured(self, rows: int, capture: Capture) -> _Graph:
        attention = self._attention.at(rows)
        ids, positions = self._inputs.of(rows)
        # No rows but those of padding.
        nobody = trial_batch(cached=0, extend=1, page_size=1, rows=0, windows=True)
        attention.plan(nobody)
        self._inputs.fill(rows, nobody.input_ids, nobody.positions)

        def run() -> Tensor:
            return self._model(self._futures.resolve_on_device(ids), positions, attention)

        replay, hidden = capture(run)
        return _Graph(attention, replay, hidden)
