"""What a model needs of attention: one plan a batch, then one call a layer."""

from typing import Protocol

from torch import Tensor

from pando_worker.runner.batch import ForwardBatch


class AttentionBackend(Protocol):
    """Causal attention of a batch's new tokens over all tokens of their rows in the KV pool."""

    def plan(self, batch: ForwardBatch) -> None:
        """Prepare what all layers share: indices, masks, scratch."""
        ...

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        """Store the new keys and values in the pool, then attend.

        Args:
            q: [num_tokens, heads, head_dim]
            k, v: [num_tokens, kv_heads, head_dim]; `heads` is a multiple of `kv_heads`

        Returns:
            [num_tokens, heads, head_dim]
        """
        ...
