"""The attention interface for models: one plan per batch, then one call per layer."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from pando_worker.batch import ForwardBatch, Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionLayer:
    """The constants of one layer's attention, as this rank computes it."""

    index: int  # of its tensors in the KV pool
    heads: int  # a multiple of `kv_heads`
    kv_heads: int
    head_dim: int  # of queries and keys
    v_head_dim: int  # of values
    scale: float  # of the scores, usually head_dim ** -0.5
    window: int | None = None  # keys that a query sees, including its own; None: all earlier ones
    soft_cap: float | None = None  # scores become cap * tanh(score / cap), before the mask
    sinks: Tensor | None = (
        None  # [heads], an extra score per head in the softmax that has no value vector
    )


def page_numbers(batch: ForwardBatch, released: bool) -> tuple[Int32, Int64]:
    """A batch's page table, [batch, max_pages], and the slots of its new tokens, [num_tokens].

    Args:
        released: for the layers that release pages behind their window: `TokenToKVPool.windowed`
    """
    if not released:
        return batch.page_table, batch.out_slots
    assert batch.window_table is not None, "the batch was made for a pool that all layers share"
    assert batch.window_slots is not None
    return batch.window_table, batch.window_slots


class AttentionBackend(Protocol):
    """Attention of a batch's new tokens over all tokens of their rows in the KV pool: causal, but
    for what `ForwardBatch.seen` says of images."""

    def plan(self, batch: ForwardBatch) -> None:
        """Prepare the data that all layers share: indices, masks, scratch memory."""
        ...

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        """Store the new keys and values in the pool, then compute attention.

        Args:
            q: [num_tokens, heads, head_dim]
            k: [num_tokens, kv_heads, head_dim]
            v: [num_tokens, kv_heads, v_head_dim]

        Returns:
            [num_tokens, heads, v_head_dim]
        """
        ...
