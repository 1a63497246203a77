"""`PiecewiseGraphs`: runs steps of few tokens in CUDA graphs of all but attention.

Under load a step has decodes and a chunk of a prompt. Its attention has other kernels each time,
but all else depends on the number of tokens only. So a model is captured in pieces, from one
attention to the next, for some numbers of tokens (as in vLLM and SGLang, but without a compiler);
a step takes the next larger one, and launches attention itself between two pieces. Padding tokens
have id 0, position 0, and write to a page that no request owns.

Larger steps run without graphs: their kernels take longer than launching them.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.batch import ForwardBatch
from pando_worker.progress import Report, Stage, unreported
from pando_worker.runner.cuda.capture import CaptureInPieces, Replay
from pando_worker.runner.cuda.cuda_graph import Model
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.sampling.future_tokens import FutureTokens


def piece_sizes(most: int) -> list[int]:
    """Numbers of tokens up to `most`, ascending: multiples of 16 up to 128, and then eight or
    fewer for each doubling, so that padding adds at most an eighth."""
    sizes, size = [], 16
    while size < most:
        sizes.append(size)
        size += max(16, 1 << (size.bit_length() - 4))
    return [*sizes, most] if most else []


class CutAttention(AttentionBackend, Protocol):
    """An attention backend's interface for pieces.

    Attributes:
        cut: called by `forward` with its layer, where a piece ends
    """

    cut: Callable[[AttentionLayer], None]

    def between(self, layer: AttentionLayer, count: int) -> None:
        """Attention of a layer for the `count` tokens that were planned, behind the piece that ends
        with it."""
        ...


@dataclass(frozen=True, slots=True)
class _Pieces:
    layers: list[AttentionLayer]  # each piece but the last ends with one
    replays: list[Replay]


class PiecewiseGraphs:
    """
    Attributes:
        sizes: numbers of tokens that have graphs, ascending
    """

    def __init__(
        self,
        model: Model,
        attention: CutAttention,
        futures: FutureTokens,
        inputs: GraphInputs,
        hidden: Tensor,
        *,
        sizes: Sequence[int],
        capture: CaptureInPieces,
        report: Report = unreported,
    ) -> None:
        """Captures all graphs.

        Args:
            hidden: [most tokens, hidden_size], memory for the model's results
            report: called with the share of the graphs that it has
        """
        self.sizes = sorted(sizes)
        self._model, self._futures, self._attention = model, futures, attention
        self._inputs, self._hidden = inputs, hidden
        self._graphs: dict[tuple[int, bool], _Pieces] = {}
        for number, size in enumerate(reversed(self.sizes), start=1):
            for adapted in inputs.kinds(size):
                self._graphs[size, adapted] = self._captured(size, capture)
            report(Stage.GRAPHS, number / len(self.sizes))

    def run(self, batch: ForwardBatch) -> Tensor | None:
        """Final hidden states, [num_tokens, hidden_size], until the next step; None if the step has
        too many tokens."""
        count = len(batch.input_ids)
        if count > self.sizes[-1]:
            return None
        size = self.sizes[bisect_left(self.sizes, count)]
        self._attention.plan(batch)
        self._inputs.fill(size, batch.input_ids, batch.positions)
        pieces = self._graphs[size, self._inputs.fill_adapters()]
        for replay, layer in zip(pieces.replays, pieces.layers, strict=False):
            replay()
            self._attention.between(layer, count)
        pieces.replays[-1]()
        return self._hidden[:count]

    @torch.inference_mode()
    def _captured(self, size: int, capture: CaptureInPieces) -> _Pieces:
        ids, positions = self._inputs.of(size)
        layers: list[AttentionLayer] = []

        def run(cut: Callable[[], None]) -> None:
            layers.clear()

            def cut_behind(layer: AttentionLayer) -> None:
                layers.append(layer)
                cut()

            self._attention.cut = cut_behind
            resolved = self._futures.resolve_on_device(ids)
            self._hidden[:size].copy_(self._model(resolved, positions, self._attention))

        return _Pieces(layers, capture.in_pieces(run))
