"""What a model needs of attention: one plan a batch, then one call a layer."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from pando_worker.batch import ForwardBatch, Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionLayer:
    """One layer's attention, as this rank computes it: what never changes from step to step."""

    index: int  # which tensors of the KV pool are its own
    heads: int  # a multiple of `kv_heads`
    kv_heads: int
    head_dim: int  # of queries and keys
    v_head_dim: int  # of values
    scale: float  # of the scores, mostly head_dim ** -0.5
    window: int | None = None  # keys that a query sees, its own included; None is all before it
    soft_cap: float | None = None  # scores become cap * tanh(score / cap), before the mask
    sinks: Tensor | None = (
        None  # [heads], one more score a head that takes its share of the softmax
    )


def page_numbers(batch: ForwardBatch, released: bool) -> tuple[Int32, Int64]:
    """A batch's page table, [batch, max_pages], and where its new tokens go, [num_tokens].

    Args:
        released: of the layers that release pages behind their window: `TokenToKVPool.windowed`
    """
    if not released:
        return batch.page_table, batch.out_slots
    assert batch.window_table is not None, "the batch was made for a pool that all layers share"
    assert batch.window_slots is not None
    return batch.window_table, batch.window_slots


class AttentionBackend(Protocol):
    """Causal attention of a batch's new tokens over all tokens of their rows in the KV pool."""

    def plan(self, batch: ForwardBatch) -> None:
        """Prepare what all layers share: indices, masks, scratch."""
        ...

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        """Store the new keys and values in the pool, then attend.

        Args:
            q: [num_tokens, heads, head_dim]
            k: [num_tokens, kv_heads, head_dim]
            v: [num_tokens, kv_heads, v_head_dim]

        Returns:
            [num_tokens, heads, v_head_dim]
        """
        ...
