"""`turn_heads`: between the projection to queries, keys and values and attention, as one Triton
kernel: norms of queries and keys, their rotation, and storing keys and values in the KV pool.

It computes what `Attention` does with `Ops.rms_norm` for each, `Ops.rotate` and an attention
backend's `store`, which read and write all heads in memory four times. One program takes one head
of one token.
"""

import triton
import triton.language as tl
from torch import Tensor, float8_e4m3fn, uint8

from pando_worker.attention.backend import AttentionLayer, HeadTurn, LayerKV
from pando_worker.cuda.kv_store import put


def turn_heads(
    qkv: Tensor, turn: HeadTurn, layer: AttentionLayer, pool: LayerKV, slots: Tensor
) -> Tensor:
    """A `HeadTurner`."""
    tokens, heads, dim = qkv.shape
    rotary = turn.table.shape[1]
    assert layer.head_dim == layer.v_head_dim == dim and heads == layer.heads + 2 * layer.kv_heads
    assert qkv.stride(2) == 1 and turn.table.is_contiguous() and rotary <= dim
    assert pool.k.is_contiguous() and pool.v.is_contiguous() and slots.is_contiguous()
    quantized = pool.k.dtype == float8_e4m3fn
    assert quantized or pool.k.dtype == qkv.dtype
    keys, values = (part.view(uint8) if quantized else part for part in (pool.k, pool.v))
    out = qkv.new_empty(tokens, layer.heads, dim)
    _turn_heads[(tokens, heads)](
        qkv,
        turn.table,
        turn.q_norm,
        turn.k_norm,
        keys,
        values,
        slots,
        out,
        layer.heads,
        layer.kv_heads,
        dim,
        rotary,
        qkv.stride(0),
        qkv.stride(1),
        turn.eps,
        1.0 / pool.scales.k,
        1.0 / pool.scales.v,
        NORMED=turn.q_norm is not None,
        OFFSET=turn.offset,
        QUANTIZED=quantized,
        BLOCK=triton.next_power_of_2(dim),
        num_warps=1,
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _turned(  # type: ignore[no-untyped-def]
    head,
    table,
    norm,
    dim,
    rotary,
    eps,
    NORMED: tl.constexpr,  # noqa: N803
    OFFSET: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """A head of queries or keys, normalised and rotated, in float32; `table` is its token's row."""
    lane = tl.arange(0, BLOCK)
    half = rotary // 2
    is_own, is_rotated = lane < dim, lane < rotary
    pair = tl.where(lane < half, lane + half, lane - half)  # the one with which it turns
    x = tl.load(head + lane, mask=is_own, other=0.0).to(tl.float32)
    y = tl.load(head + pair, mask=is_rotated, other=0.0).to(tl.float32)
    if NORMED:
        scale = tl.rsqrt(tl.sum(x * x, 0) / dim + eps)
        x_weight = tl.load(norm + lane, mask=is_own, other=0.0).to(tl.float32)
        y_weight = tl.load(norm + pair, mask=is_rotated, other=0.0).to(tl.float32)
        if OFFSET:
            x_weight += 1.0
            y_weight += 1.0
        x *= scale * x_weight
        y *= scale * y_weight
    angle = tl.where(lane < half, lane, lane - half)
    cos = tl.load(table + angle, mask=is_rotated, other=1.0)
    sin = tl.load(table + half + angle, mask=is_rotated, other=0.0)
    return x * cos + tl.where(lane < half, -y, y) * sin


@triton.jit  # type: ignore[untyped-decorator]
def _turn_heads(  # type: ignore[no-untyped-def]
    qkv,
    table,
    q_norm,
    k_norm,
    keys,
    values,
    slots,
    out,
    heads,
    kv_heads,
    dim,
    rotary,
    token_stride,
    head_stride,
    eps,
    k_factor,
    v_factor,
    NORMED: tl.constexpr,  # noqa: N803
    OFFSET: tl.constexpr,  # noqa: N803
    QUANTIZED: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    token, number = tl.program_id(0).to(tl.int64), tl.program_id(1)
    head = qkv + token * token_stride + number * head_stride
    turns = table + token * rotary
    lane = tl.arange(0, BLOCK)
    is_own = lane < dim
    if number < heads:
        x = _turned(head, turns, q_norm, dim, rotary, eps, NORMED, OFFSET, BLOCK)
        target = out + (token * heads + number) * dim + lane
        tl.store(target, x.to(out.dtype.element_ty), mask=is_own)
    else:
        # Slots times heads exceed 32 bits in large pools.
        first = tl.load(slots + token).to(tl.int64) * kv_heads - heads + number
        if number < heads + kv_heads:
            x = _turned(head, turns, k_norm, dim, rotary, eps, NORMED, OFFSET, BLOCK)
            put(keys + first * dim + lane, x, k_factor, is_own, QUANTIZED)
        else:
            value = tl.load(head + lane, mask=is_own, other=0.0)
            put(values + (first - kv_heads) * dim + lane, value, v_factor, is_own, QUANTIZED)
