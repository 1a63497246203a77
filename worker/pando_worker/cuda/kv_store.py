"""`store_kv`: new keys and values put into their slots of the KV pool, by one Triton kernel, which
quantizes them to fp8 if the pool is.

It computes what `TokenToKVPool.store` does with several of torch's kernels for keys and for values.
The conversion to fp8 is done on bits, as GPUs before compute capability 8.9 have no instruction for
it; memory is what takes the time here.
"""

import triton
import triton.language as tl
from torch import Tensor, float8_e4m3fn, uint8

from pando_worker.attention.backend import LayerKV

BLOCK = 1024  # numbers that one program stores


def store_kv(k: Tensor, v: Tensor, pool: LayerKV, slots: Tensor) -> None:
    """A `KVStorer`.

    Args:
        k, v: [num_tokens, kv_heads, head_dim or v_head_dim]; a token's heads are contiguous
        pool: of the same dtype as `k` or e4m3
        slots: int32 or int64 [num_tokens]
    """
    quantized = pool.k.dtype == float8_e4m3fn
    assert quantized or pool.k.dtype == k.dtype
    assert all(part.stride(2) == 1 and part.stride(1) == part.shape[2] for part in (k, v))
    assert pool.k.is_contiguous() and pool.v.is_contiguous() and slots.is_contiguous()
    keys, values = (part.view(uint8) if quantized else part for part in (pool.k, pool.v))
    k_width, v_width = k[0].numel(), v[0].numel()
    _store_kv[(len(slots), triton.cdiv(max(k_width, v_width), BLOCK))](
        k,
        v,
        keys,
        values,
        slots,
        k_width,
        v_width,
        k.stride(0),
        v.stride(0),
        1.0 / pool.scales.k,
        1.0 / pool.scales.v,
        QUANTIZED=quantized,
        BLOCK=BLOCK,
    )


@triton.jit
def e4m3_bits(x):  # type: ignore[no-untyped-def]
    """The octets of float32 numbers as e4m3, clamped at 448: the nearest one, and if two are as
    near, the even one."""
    x = tl.where(x > 448.0, 448.0, tl.where(x < -448.0, -448.0, x))
    bits = x.to(tl.int32, bitcast=True)
    sign = (bits >> 24) & 0x80
    bits &= 0x7FFFFFFF
    # The exponent's bias goes from 127 to 7, the fraction from 23 bits to 3.
    normal = (bits - (120 << 23) + 0x7FFFF + ((bits >> 20) & 1)) >> 20
    # Below 2^-6 the sum's last bits count 2^-9, and the addition rounds them.
    small = (bits.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - (141 << 23)
    octet = tl.where(bits < (121 << 23), small, normal)
    octet = tl.where(bits > 0x7F800000, 0x7F, octet)  # NaN
    return (octet | sign).to(tl.uint8)


@triton.jit  # type: ignore[untyped-decorator]
def put(  # type: ignore[no-untyped-def]
    target,
    numbers,
    factor,
    mask,
    QUANTIZED: tl.constexpr,  # noqa: N803
):
    """Write numbers to addresses in the pool, times `factor` if that is quantized."""
    if QUANTIZED:
        tl.store(target, e4m3_bits(numbers.to(tl.float32) * factor), mask=mask)
    else:
        tl.store(target, numbers.to(target.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def _store_kv(  # type: ignore[no-untyped-def]
    k,
    v,
    keys,
    values,
    slots,
    k_width,
    v_width,
    k_stride,
    v_stride,
    k_factor,
    v_factor,
    QUANTIZED: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    # Slots times widths exceed 32 bits in large pools.
    slot = tl.load(slots + token).to(tl.int64)
    is_k, is_v = column < k_width, column < v_width
    k_numbers = tl.load(k + token * k_stride + column, mask=is_k, other=0.0)
    put(keys + slot * k_width + column, k_numbers, k_factor, is_k, QUANTIZED)
    v_numbers = tl.load(v + token * v_stride + column, mask=is_v, other=0.0)
    put(values + slot * v_width + column, v_numbers, v_factor, is_v, QUANTIZED)
