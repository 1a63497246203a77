"""What turned queries and keys must be, with values beside them: in float64."""

import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, HeadTurn


def turned(qkv: Tensor, turn: HeadTurn, layer: AttentionLayer) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, [num_tokens, heads, head_dim] each, in float64."""
    q, k, v = torch.split(qkv.double(), [layer.heads, layer.kv_heads, layer.kv_heads], dim=1)
    half = turn.table.shape[1] // 2
    cos, sin = turn.table.double()[:, None, :half], turn.table.double()[:, None, half:]

    def one(x: Tensor, norm: Tensor | None) -> Tensor:
        if norm is not None:
            weight = norm.double() + (1.0 if turn.offset else 0.0)
            x = x / (x.square().mean(-1, keepdim=True) + turn.eps).sqrt() * weight
        first, second = x[..., :half], x[..., half : 2 * half]
        rotated = (first * cos - second * sin, second * cos + first * sin)
        return torch.cat((*rotated, x[..., 2 * half :]), dim=-1)

    return one(q, turn.q_norm), one(k, turn.k_norm), v
