"""`expert_product`: one matrix product for each expert's rows, as a Triton kernel.

It computes what `torch.nn.functional.grouped_mm` does. torch has one kernel for that only for
bfloat16 on GPUs of compute capability 9 and 10. Elsewhere it has a loop that reads the row counts
on the host, so it waits for the device and no CUDA graph can capture it. Here the counts stay on
the device: the grid has as many tiles as the rows could need at most, and each program finds its
expert.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pando_worker.cuda.mxfp4_tile import mxfp4_tile

BLOCK_OUT, BLOCK_IN = 64, 64
LEAST_ROWS, MOST_ROWS = 16, 64  # of a tile; tensor cores need 16


def expert_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Each row times its expert's weight: [rows, in] to [rows, out], in the dtype of `x`.

    Args:
        x: [rows, in], sorted by expert; bfloat16 or float16
        weight: [experts, out, in], of the same dtype
        ends: int32 [experts], the end of each expert's rows; the last is the number of rows
    """
    rows, experts, outputs = len(x), len(weight), weight.shape[1]
    assert x.dtype == weight.dtype and ends.dtype == torch.int32 and len(ends) == experts
    assert x.stride(1) == weight.stride(2) == ends.stride(0) == 1
    out = x.new_empty(rows, outputs)
    block = tile_rows(rows, experts)
    # An expert's last tile may be partial.
    tiles = rows // block + min(rows, experts)
    _expert_product[(tiles, triton.cdiv(outputs, BLOCK_OUT))](
        x,
        weight,
        ends,
        out,
        experts,
        outputs,
        x.shape[1],
        x.stride(0),
        weight.stride(0),
        weight.stride(1),
        out.stride(0),
        EXPERTS=triton.next_power_of_2(experts),
        BLOCK_ROWS=block,
        BLOCK_OUT=BLOCK_OUT,
        BLOCK_IN=BLOCK_IN,
    )
    return out


def tile_rows(rows: int, experts: int) -> int:
    """A power of two near the average number of rows of an expert."""
    average = 1 << max(rows // experts - 1, 0).bit_length()
    return min(max(average, LEAST_ROWS), MOST_ROWS)


@triton.jit  # type: ignore[untyped-decorator]
def find_tile(  # type: ignore[no-untyped-def]
    ends,
    experts,
    tile,
    EXPERTS: tl.constexpr,  # noqa: N803
    BLOCK_ROWS: tl.constexpr,  # noqa: N803
):
    """A tile's expert, its first row, and the end of its expert's rows. Each expert has whole tiles
    of its own; for a tile that is not needed the expert is `experts`."""
    numbers = tl.arange(0, EXPERTS)
    last = tl.load(ends + numbers, mask=numbers < experts, other=0)
    first = tl.load(ends + numbers - 1, mask=(numbers > 0) & (numbers < experts), other=0)
    tiles = tl.where(numbers < experts, (last - first + BLOCK_ROWS - 1) // BLOCK_ROWS, 0)
    tile_ends = tl.cumsum(tiles, 0)
    expert = tl.sum((tile_ends <= tile).to(tl.int32), 0)
    expert = tl.minimum(expert, experts)
    is_own = numbers == expert
    first_row = tl.sum(tl.where(is_own, first, 0), 0)
    end_row = tl.sum(tl.where(is_own, last, 0), 0)
    first_tile = tl.sum(tl.where(is_own, tile_ends - tiles, 0), 0)
    return expert, first_row + (tile - first_tile) * BLOCK_ROWS, end_row


@triton.jit  # type: ignore[untyped-decorator]
def multiply(  # type: ignore[no-untyped-def]
    rows,
    is_row,
    columns,
    is_column,
    inputs,
    BLOCK_ROWS: tl.constexpr,  # noqa: N803
    BLOCK_OUT: tl.constexpr,  # noqa: N803
    BLOCK_IN: tl.constexpr,  # noqa: N803
    scales=None,
    scaled_inputs=1,
    SCALED: tl.constexpr = False,  # noqa: N803
    MXFP4: tl.constexpr = False,  # noqa: N803
):
    """A tile's products in float32, [BLOCK_ROWS, BLOCK_OUT].

    Args:
        rows, columns: addresses of the first of their `inputs`, [BLOCK_ROWS, BLOCK_IN] and
            [BLOCK_IN, BLOCK_OUT]; with MXFP4 `columns` are those of octets, [BLOCK_OUT]
        scales: with SCALED or MXFP4, addresses of each column's first scale, [BLOCK_OUT], of which
            there is one for `scaled_inputs` inputs
    """
    inner = tl.arange(0, BLOCK_IN)
    total = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
    for start in range(0, inputs, BLOCK_IN):
        is_inner = start + inner < inputs
        some = tl.load(rows + start, mask=is_row[:, None] & is_inner[None, :], other=0.0)
        if MXFP4:
            part = mxfp4_tile(columns, scales, start, inputs, is_column, BLOCK_IN, BLOCK_OUT)
        else:
            part = tl.load(columns + start, mask=is_column[None, :] & is_inner[:, None], other=0.0)
        if SCALED:
            scale = tl.load(scales + start // scaled_inputs, mask=is_column, other=0.0)
            total += tl.dot(some, part.to(some.dtype)) * scale[None, :]
        else:
            total = tl.dot(some, part.to(some.dtype), total)
    return total


@triton.jit  # type: ignore[untyped-decorator]
def _expert_product(  # type: ignore[no-untyped-def]
    x,
    weight,
    ends,
    out,
    experts,
    outputs,
    inputs,
    x_stride,
    expert_stride,
    output_stride,
    out_stride,
    EXPERTS: tl.constexpr,  # noqa: N803
    BLOCK_ROWS: tl.constexpr,  # noqa: N803
    BLOCK_OUT: tl.constexpr,  # noqa: N803
    BLOCK_IN: tl.constexpr,  # noqa: N803
):
    expert, first_row, end_row = find_tile(ends, experts, tl.program_id(0), EXPERTS, BLOCK_ROWS)
    if expert < experts:  # otherwise the tile is not needed
        row = first_row + tl.arange(0, BLOCK_ROWS)
        column = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
        inner = tl.arange(0, BLOCK_IN)
        is_row, is_column = row < end_row, column < outputs
        # Strides times numbers exceed 32 bits in large models.
        x_rows = x + row.to(tl.int64)[:, None] * x_stride + inner[None, :]
        columns = weight + expert.to(tl.int64) * expert_stride
        columns += column.to(tl.int64)[None, :] * output_stride + inner[:, None]
        total = multiply(
            x_rows, is_row, columns, is_column, inputs, BLOCK_ROWS, BLOCK_OUT, BLOCK_IN
        )
        target = out + row.to(tl.int64)[:, None] * out_stride + column[None, :]
        mask = is_row[:, None] & is_column[None, :]
        tl.store(target, total.to(out.dtype.element_ty), mask=mask)
