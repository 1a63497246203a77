"""Attention over contiguous keys, with every feature of an `AttentionLayer`."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pando_worker.attention.backend import AttentionLayer

# Bytes of a mask that torch's kernels for GPUs read at once. Torch copies masks whose rows are not
# aligned, but one that begins elsewhere ends the process's use of the GPU (seen with 2.11).
MASK_ALIGNMENT = 16


def attend(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, layer: AttentionLayer
) -> Tensor:
    """Softmax of the scaled, masked scores over the keys, times the values.

    Args:
        q: [rows, heads, queries, q_dim]
        keys: [rows, kv_heads, n, q_dim]
        values: [rows, kv_heads, n, v_head_dim]
        mask: added to the scores, broadcast to [rows, heads, queries, n]; with several queries,
            [queries, n] or [heads, queries, n]. It includes the layer's window and bias.

    Returns:
        [rows, heads, queries, v_head_dim]
    """
    # Torch's operator repeats the keys of all heads where these are wider than the values.
    folds = layer.latent and q.shape[2] > 1
    if layer.soft_cap is not None or layer.sinks is not None or folds:
        return _explicit(q, keys, values, mask, layer)
    if mask is not None and mask.is_cuda and mask.data_ptr() % MASK_ALIGNMENT:
        mask = mask.clone(memory_format=torch.contiguous_format)
    if q.shape[2] > 1:
        return scaled_dot_product_attention(
            q, keys, values, attn_mask=mask, scale=layer.scale, enable_gqa=True
        )
    # Heads that share a KV head become its queries: measured faster than repeating the keys.
    if mask is not None and mask.shape[1] > 1:
        mask = mask.reshape(len(q), layer.kv_heads, -1, mask.shape[-1])
    out = scaled_dot_product_attention(
        q.view(len(q), layer.kv_heads, -1, layer.q_dim),
        keys,
        values,
        attn_mask=mask,
        scale=layer.scale,
    )
    return out.reshape(len(q), layer.heads, 1, layer.v_head_dim)


def _explicit(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, layer: AttentionLayer
) -> Tensor:
    """Like `attend`, with soft caps and sinks, which torch's operator lacks, and
    with heads as queries."""
    rows, heads, queries, _ = q.shape
    folded = q.reshape(rows, layer.kv_heads, -1, layer.q_dim)
    scores = (folded @ keys.transpose(-1, -2)).float().mul_(layer.scale)
    scores = scores.view(rows, heads, queries, -1)
    if layer.soft_cap is not None:
        scores = scores.div_(layer.soft_cap).tanh_().mul_(layer.soft_cap)
    if mask is not None:
        scores += mask
    if layer.sinks is None:
        weights = scores.softmax(dim=-1)
    else:
        sinks = layer.sinks.float().view(1, heads, 1, 1).expand(rows, heads, queries, 1)
        weights = torch.cat((scores, sinks), dim=-1).softmax(dim=-1)[..., :-1]
    folded_weights = weights.to(values.dtype).reshape(rows, layer.kv_heads, -1, weights.shape[-1])
    return (folded_weights @ values).view(rows, heads, queries, layer.v_head_dim)
