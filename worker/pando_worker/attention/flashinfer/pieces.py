"""flashinfer's attention for steps whose other layers run as CUDA graphs.

Attention has other kernels for each batch, so it stays outside of the graphs, between two pieces of
them. Keys and values are stored within a piece. It leaves queries, and the next one reads results,
in memory that all layers of a shape and all sizes share.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, HeadTurn
from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.batch import ForwardBatch


class AttentionPieces:
    """An `AttentionBackend` while the model's pieces are captured: it computes nothing, but calls
    `cut` for each layer. `between` computes it when they are replayed.

    Attributes:
        cut: called with the layer where a piece ends
    """

    def __init__(
        self, attention: FlashinferAttention, most_tokens: int, padding: dict[bool, int]
    ) -> None:
        """
        Args:
            most_tokens: of the largest graph
            padding: the slot that padding tokens are written to, by whether layers release pages
        """
        self.cut: Callable[[AttentionLayer], None] = lambda layer: None
        self._attention, self._padding = attention, padding
        kinds = attention.kinds
        heads = {(kind.heads, kind.q_dim) for kind in kinds}
        v_heads = {(kind.heads, kind.v_head_dim) for kind in kinds}

        def zeros(shape: tuple[int, int]) -> Tensor:
            return torch.zeros(
                most_tokens, *shape, dtype=attention.formats.dtype, device=attention.device
            )

        self._queries = {shape: zeros(shape) for shape in heads}
        self._results = {shape: zeros(shape) for shape in v_heads}
        self._slots = {
            released: torch.full(
                (most_tokens,), slot, dtype=attention.slot_dtype, device=attention.device
            )
            for released, slot in padding.items()
            if released in attention.released.values()
        }

    def plan(self, batch: ForwardBatch) -> None:
        """For a step of any number of tokens up to the most."""
        attention, count = self._attention, len(batch.input_ids)
        attention.plan(batch)
        for released, slots in self._slots.items():
            slots[:count].copy_(attention.slots[released])
            slots[count:].fill_(self._padding[released])
        for results in self._results.values():
            results[count:].zero_()  # what an earlier step left may be infinite

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        self._attention.store(k, v, layer, self._slots_of(layer, len(q)))
        return self._cut(q, layer)

    @property
    def turns(self) -> bool:
        return self._attention.turns

    def forward_turned(self, qkv: Tensor, turn: HeadTurn, layer: AttentionLayer) -> Tensor:
        slots = self._slots_of(layer, len(qkv))
        return self._cut(self._attention.turn(qkv, turn, layer, slots), layer)

    def _slots_of(self, layer: AttentionLayer, count: int) -> Tensor:
        attention = self._attention
        return self._slots[attention.released[attention.kind_of(layer)]][:count]

    def _cut(self, q: Tensor, layer: AttentionLayer) -> Tensor:
        count = len(q)
        self._queries[layer.heads, layer.q_dim][:count].copy_(q)
        self.cut(layer)
        return self._results[layer.heads, layer.v_head_dim][:count]

    def between(self, layer: AttentionLayer, count: int) -> None:
        """Attention of a layer, behind the piece that stored its keys.

        Args:
            count: tokens of the step that was planned
        """
        q = self._queries[layer.heads, layer.q_dim][:count]
        self._attention.attend(q, layer, self._results[layer.heads, layer.v_head_dim][:count])
