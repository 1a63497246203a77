"""`mxfp4_tile`: part of a matrix of 4-bit floats, decoded as a Triton kernel reads it.

Decoding is exact in bfloat16, but for scales of 2^-127, which become 0, and 2^128, which mxfp4 does
not have.
"""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def mxfp4_tile(  # type: ignore[no-untyped-def]
    octets,
    exponents,
    start,
    inputs,
    is_column,
    BLOCK_IN: tl.constexpr,  # noqa: N803
    BLOCK_OUT: tl.constexpr,  # noqa: N803
):
    """The numbers of some columns from their input `start` on, float32 [BLOCK_IN, BLOCK_OUT]; past
    `inputs`, a multiple of 32, zeros.

    Args:
        octets, exponents: addresses of each column's first, [BLOCK_OUT]; see `Mxfp4Matrix`
        start: a multiple of BLOCK_IN
    """
    pair = start // 2 + tl.arange(0, BLOCK_IN // 2)[:, None]
    run = start // 32 + tl.arange(0, BLOCK_IN // 32)[:, None]
    octet_mask = is_column[None, :] & (pair < inputs // 2)
    octet = tl.load(octets[None, :] + pair, mask=octet_mask, other=0).to(tl.int32)
    exponent_mask = is_column[None, :] & (run < inputs // 32)
    exponent = tl.load(exponents[None, :] + run, mask=exponent_mask, other=0).to(tl.int32)
    scale = (exponent << 23).to(tl.float32, bitcast=True)
    scales = tl.broadcast_to(scale[:, None, :], (BLOCK_IN // 32, 32, BLOCK_OUT))
    both = tl.join(_e2m1(octet & 15), _e2m1(octet >> 4))  # [BLOCK_IN / 2, BLOCK_OUT, 2]
    values = tl.reshape(tl.permute(both, (0, 2, 1)), (BLOCK_IN, BLOCK_OUT))
    return values * tl.reshape(scales, (BLOCK_IN, BLOCK_OUT))


@triton.jit
def _e2m1(nibble):  # type: ignore[no-untyped-def]
    """The numbers of four bits. As the upper bits of a float16 they have its sign, exponent and
    fraction, and an exponent too small by 14."""
    bits = ((nibble & 8) << 12) | ((nibble & 7) << 9)
    return bits.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32) * 16384.0
