"""`turn_heads`: between the projection to queries, keys and values and attention, as one Triton
kernel: norms of queries and keys, their rotation, and storing keys and values in the KV pool.

It computes what `Attention` does with `Ops.rms_norm` for each, `Ops.rotate` and an attention
backend's `store`, which read and write all heads in memory four times. One program takes some
heads of one token, and each head as the halves that turn with each other and the rest behind them,
so that all addresses follow each other.
"""

import triton
import triton.language as tl
from torch import Tensor, float8_e4m3fn, uint8

from pando_worker.attention.backend import AttentionLayer, HeadTurn, LayerKV
from pando_worker.cuda.kv_store import put

NUMBERS = 1024  # of the heads that one program takes


def turn_heads(
    qkv: Tensor, turn: HeadTurn, layer: AttentionLayer, pool: LayerKV, slots: Tensor
) -> Tensor:
    """A `HeadTurner`. The rotary dimension is a power of two."""
    tokens, heads, dim = qkv.shape
    rotary = turn.table.shape[1]
    assert layer.head_dim == layer.v_head_dim == dim and heads == layer.heads + 2 * layer.kv_heads
    assert qkv.stride(2) == 1 and turn.table.is_contiguous() and rotary <= dim
    assert pool.k.is_contiguous() and pool.v.is_contiguous() and slots.is_contiguous()
    quantized = pool.k.dtype == float8_e4m3fn
    assert quantized or pool.k.dtype == qkv.dtype
    keys, values = (part.view(uint8) if quantized else part for part in (pool.k, pool.v))
    out = qkv.new_empty(tokens, layer.heads, dim)
    most = NUMBERS // triton.next_power_of_2(dim)
    q_group, kv_group = (
        min(most, triton.next_power_of_2(count)) for count in (layer.heads, layer.kv_heads)
    )
    groups = triton.cdiv(layer.heads, q_group) + 2 * triton.cdiv(layer.kv_heads, kv_group)
    _turn_heads[(tokens, groups)](
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
        qkv.stride(0),
        qkv.stride(1),
        turn.eps,
        1.0 / pool.scales.k,
        1.0 / pool.scales.v,
        NORMED=turn.q_norm is not None,
        OFFSET=turn.offset,
        QUANTIZED=quantized,
        HALF=rotary // 2,
        REST=dim - rotary,
        BLOCK=max(1, triton.next_power_of_2(dim - rotary)),
        Q_GROUP=q_group,
        KV_GROUP=kv_group,
        num_warps=2,
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _loaded(  # type: ignore[no-untyped-def]
    heads,
    known,
    HALF: tl.constexpr,  # noqa: N803
    REST: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Both halves of the rotated part of heads, [heads, HALF] each, and the rest, [heads, BLOCK];
    without a rest the first half again. `heads` and `known` have [heads, 1]; a norm's weights are a
    head, too."""
    lane = tl.arange(0, HALF)[None]
    first = tl.load(heads + lane, mask=known, other=0.0)
    second = tl.load(heads + HALF + lane, mask=known, other=0.0)
    rest = first
    if REST:
        behind = tl.arange(0, BLOCK)[None]
        is_own = known & (behind < REST)
        rest = tl.load(heads + 2 * HALF + behind, mask=is_own, other=0.0)
    return first, second, rest


@triton.jit  # type: ignore[untyped-decorator]
def _kept(  # type: ignore[no-untyped-def]
    targets,
    parts,
    factor,
    known,
    QUANTIZED: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
    REST: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Write what `_loaded` returns to heads at other addresses."""
    first, second, rest = parts
    lane = tl.arange(0, HALF)[None]
    put(targets + lane, first, factor, known, QUANTIZED)
    put(targets + HALF + lane, second, factor, known, QUANTIZED)
    if REST:
        behind = tl.arange(0, BLOCK)[None]
        put(targets + 2 * HALF + behind, rest, factor, known & (behind < REST), QUANTIZED)


@triton.jit  # type: ignore[untyped-decorator]
def _turned(  # type: ignore[no-untyped-def]
    parts,
    table,
    norm,
    eps,
    NORMED: tl.constexpr,  # noqa: N803
    OFFSET: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
    REST: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """Heads of queries or keys, normalised and rotated, in float32; `table` is their token's
    row."""
    first, second, rest = parts
    first, second, rest = first.to(tl.float32), second.to(tl.float32), rest.to(tl.float32)
    if NORMED:
        squares = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        if REST:
            squares += tl.sum(rest * rest, 1)
        scale = tl.rsqrt(squares / (2 * HALF + REST) + eps)[:, None]
        # Once for each head, as the angles, so that they lie in registers as the heads do.
        weights = norm + tl.zeros((first.shape[0], 1), tl.int32)
        a, b, c = _loaded(weights, tl.full((first.shape[0], 1), True, tl.int1), HALF, REST, BLOCK)
        a, b, c = a.to(tl.float32), b.to(tl.float32), c.to(tl.float32)
        if OFFSET:
            a += 1.0
            b += 1.0
            c += 1.0
        first *= scale * a
        second *= scale * b
        if REST:
            rest *= scale * c
    angles = tl.broadcast_to(table + tl.arange(0, HALF)[None], first.shape)
    cos, sin = tl.load(angles), tl.load(angles + HALF)
    return first * cos - second * sin, second * cos + first * sin, rest


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
    token_stride,
    head_stride,
    eps,
    k_factor,
    v_factor,
    NORMED: tl.constexpr,  # noqa: N803
    OFFSET: tl.constexpr,  # noqa: N803
    QUANTIZED: tl.constexpr,  # noqa: N803
    HALF: tl.constexpr,  # noqa: N803
    REST: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    Q_GROUP: tl.constexpr,  # noqa: N803
    KV_GROUP: tl.constexpr,  # noqa: N803
):
    token, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dim: tl.constexpr = 2 * HALF + REST
    turns = table + token * (2 * HALF)
    row = qkv + token * token_stride
    q_groups, kv_groups = tl.cdiv(heads, Q_GROUP), tl.cdiv(kv_heads, KV_GROUP)
    if group < q_groups:
        number = group * Q_GROUP + tl.arange(0, Q_GROUP)[:, None]
        known = number < heads
        queries = _loaded(row + number * head_stride, known, HALF, REST, BLOCK)
        turned = _turned(queries, turns, q_norm, eps, NORMED, OFFSET, HALF, REST, BLOCK)
        own = out + (token * heads + number) * dim
        _kept(own, turned, 1.0, known, False, HALF, REST, BLOCK)
    else:
        is_key = group < q_groups + kv_groups
        group -= q_groups + tl.where(is_key, 0, kv_groups)
        number = group * KV_GROUP + tl.arange(0, KV_GROUP)[:, None]
        known = number < kv_heads
        # Slots times heads exceed 32 bits in large pools.
        targets = (tl.load(slots + token).to(tl.int64) * kv_heads + number) * dim
        if is_key:
            given = _loaded(row + (heads + number) * head_stride, known, HALF, REST, BLOCK)
            new = _turned(given, turns, k_norm, eps, NORMED, OFFSET, HALF, REST, BLOCK)
            _kept(keys + targets, new, k_factor, known, QUANTIZED, HALF, REST, BLOCK)
        else:
            place = row + (heads + kv_heads + number) * head_stride
            kept = _loaded(place, known, HALF, REST, BLOCK)
            _kept(values + targets, kept, v_factor, known, QUANTIZED, HALF, REST, BLOCK)
