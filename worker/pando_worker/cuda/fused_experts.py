"""`fused_experts`: a mixture of experts in two Triton kernels and a sum.

The first gathers each expert's tokens, multiplies them with its gate and up projections and
activates the results. The second multiplies with the down projections and the experts' weights, and
writes each row to its place in token order. Without fusion (`MixtureOfExperts` with
`expert_product`), gathering, biases, activation and reordering each read and write all rows in
memory.

Matrices of e4m3 and of mxfp4 are converted as they are read, so they are multiplied as decoded ones
are. That takes half or a quarter of the reading, which is what decodes wait for; activations are
not quantized.

As there, row counts stay on the device, so a CUDA graph can capture the kernels.
"""

import triton
import triton.language as tl
from torch import Tensor, uint8

from pando_worker.cuda.expert_product import BLOCK_IN, BLOCK_OUT, find_tile, multiply, tile_rows
from pando_worker.cuda.mxfp4_tile import mxfp4_tile
from pando_worker.models.mixture import ExpertGate, ExpertWeights, Routes
from pando_worker.models.mxfp4 import RUN


def fused_experts(
    x: Tensor, weights: Tensor, routes: Routes, experts: ExpertWeights, gate: ExpertGate
) -> Tensor:
    """As `FusedExperts.run`, for bfloat16 and float16. Matrices of experts are contiguous."""
    (tokens, hidden), rows = x.shape, len(routes.rows)
    count, doubled, _ = experts.gate_up.shape
    width = doubled // 2
    mxfp4 = experts.gate_up.dtype == uint8
    scaled = experts.gate_up_scales is not None and not mxfp4
    assert mxfp4 or scaled or x.dtype == experts.gate_up.dtype == experts.down.dtype
    assert x.stride(1) == 1
    assert experts.gate_up.is_contiguous() and experts.down.is_contiguous()
    assert all(part.is_contiguous() for part in (weights, *routes[:4]))
    block = tile_rows(rows, count)
    tiles = rows // block + min(rows, count)  # an expert's last tile may be partial
    shared = {
        "EXPERTS": triton.next_power_of_2(count),
        "BLOCK_ROWS": block,
        "BLOCK_OUT": BLOCK_OUT,
        "BLOCK_IN": BLOCK_IN,
    }
    active = x.new_empty(rows, width)
    _gate_up[(tiles, triton.cdiv(width, BLOCK_OUT))](
        x,
        routes.tokens,
        experts.gate_up,
        experts.gate_up_bias,
        routes.ends,
        active,
        count,
        width,
        hidden,
        x.stride(0),
        gate.alpha,
        gate.shift,
        gate.limit,
        experts.gate_up_scales,
        *_run_sizes(experts.gate_up, experts.gate_up_scales),
        BIASED=experts.gate_up_bias is not None,
        SCALED=scaled,
        MXFP4=mxfp4,
        INTERLEAVED=gate.interleaved,
        **shared,
    )
    # In token order. Rows of other ranks' experts are not written.
    outputs = x.new_zeros(rows, hidden) if routes.elsewhere else x.new_empty(rows, hidden)
    _down[(tiles, triton.cdiv(hidden, BLOCK_OUT))](
        active,
        routes.rows,
        weights,
        experts.down,
        experts.down_bias,
        routes.ends,
        outputs,
        count,
        hidden,
        width,
        experts.down_scales,
        *_run_sizes(experts.down, experts.down_scales),
        BIASED=experts.down_bias is not None,
        SCALED=scaled,
        MXFP4=mxfp4,
        **shared,
    )
    # Adding to a token's row in place would not be deterministic.
    return outputs.view(tokens, -1, hidden).sum(dim=1)


def _run_sizes(weight: Tensor, scales: Tensor | None) -> tuple[int, int]:
    """Outputs and inputs with one scale; a loop's step never crosses two."""
    if scales is None:
        return 1, 1
    assert scales.is_contiguous()
    if weight.dtype == uint8:
        return 1, RUN
    outputs, inputs = (weight.shape[i] // scales.shape[i] for i in (1, 2))
    assert scales.shape[2] == 1 or inputs % BLOCK_IN == 0
    return outputs, inputs


@triton.jit  # type: ignore[untyped-decorator]
def _gate_up(  # type: ignore[no-untyped-def]
    x,
    tokens,
    weight,
    bias,
    ends,
    active,
    experts,
    width,
    inputs,
    x_stride,
    alpha,
    shift,
    limit,
    scales,
    scaled_outputs,
    scaled_inputs,
    BIASED: tl.constexpr,  # noqa: N803
    SCALED: tl.constexpr,  # noqa: N803
    MXFP4: tl.constexpr,  # noqa: N803
    INTERLEAVED: tl.constexpr,  # noqa: N803
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
        is_row, is_column = row < end_row, column < width
        token = tl.load(tokens + row, mask=is_row, other=0).to(tl.int64)
        gates, ups = column, width + column
        if INTERLEAVED:
            gates, ups = 2 * column, 2 * column + 1
        # Strides times numbers exceed 32 bits in large models.
        first = expert.to(tl.int64) * 2 * width
        x_rows = x + token[:, None] * x_stride + inner[None, :]
        if MXFP4:
            gate_columns = weight + (first + gates) * (inputs // 2)
            up_columns = weight + (first + ups) * (inputs // 2)
        else:
            gate_columns = weight + (first + gates)[None, :] * inputs + inner[:, None]
            up_columns = weight + (first + ups)[None, :] * inputs + inner[:, None]
        gate_scales, up_scales = scales, scales
        if SCALED or MXFP4:
            runs = inputs // scaled_inputs
            gate_scales = scales + (first + gates) // scaled_outputs * runs
            up_scales = scales + (first + ups) // scaled_outputs * runs
        gate = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
        up = tl.zeros((BLOCK_ROWS, BLOCK_OUT), dtype=tl.float32)
        for start in range(0, inputs, BLOCK_IN):
            is_inner = start + inner < inputs
            mask = is_column[None, :] & is_inner[:, None]
            some_x = tl.load(x_rows + start, mask=is_row[:, None] & is_inner[None, :], other=0.0)
            if MXFP4:
                gate_part = mxfp4_tile(
                    gate_columns, gate_scales, start, inputs, is_column, BLOCK_IN, BLOCK_OUT
                )
                up_part = mxfp4_tile(
                    up_columns, up_scales, start, inputs, is_column, BLOCK_IN, BLOCK_OUT
                )
            else:
                gate_part = tl.load(gate_columns + start, mask=mask, other=0.0)
                up_part = tl.load(up_columns + start, mask=mask, other=0.0)
            if SCALED:
                run = start // scaled_inputs
                gate_scale = tl.load(gate_scales + run, mask=is_column, other=0.0)[None, :]
                up_scale = tl.load(up_scales + run, mask=is_column, other=0.0)[None, :]
                gate += tl.dot(some_x, gate_part.to(some_x.dtype)) * gate_scale
                up += tl.dot(some_x, up_part.to(some_x.dtype)) * up_scale
            else:
                gate = tl.dot(some_x, gate_part.to(some_x.dtype), gate)
                up = tl.dot(some_x, up_part.to(some_x.dtype), up)
        if BIASED:
            gate += tl.load(bias + first + gates, mask=is_column, other=0.0).to(tl.float32)[None, :]
            up += tl.load(bias + first + ups, mask=is_column, other=0.0).to(tl.float32)[None, :]
        gate = tl.minimum(gate, limit)
        up = tl.maximum(tl.minimum(up, limit), -limit)
        result = (up + shift) * gate * tl.sigmoid(alpha * gate)
        target = active + row.to(tl.int64)[:, None] * width + column[None, :]
        mask = is_row[:, None] & is_column[None, :]
        tl.store(target, result.to(active.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def _down(  # type: ignore[no-untyped-def]
    active,
    rows,
    shares,
    weight,
    bias,
    ends,
    out,
    experts,
    outputs,
    inputs,
    scales,
    scaled_outputs,
    scaled_inputs,
    BIASED: tl.constexpr,  # noqa: N803
    SCALED: tl.constexpr,  # noqa: N803
    MXFP4: tl.constexpr,  # noqa: N803
    EXPERTS: tl.constexpr,  # noqa: N803
    BLOCK_ROWS: tl.constexpr,  # noqa: N803
    BLOCK_OUT: tl.constexpr,  # noqa: N803
    BLOCK_IN: tl.constexpr,  # noqa: N803
):
    expert, first_row, end_row = find_tile(ends, experts, tl.program_id(0), EXPERTS, BLOCK_ROWS)
    if expert < experts:
        row = first_row + tl.arange(0, BLOCK_ROWS)
        column = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
        inner = tl.arange(0, BLOCK_IN)
        is_row, is_column = row < end_row, column < outputs
        first = expert.to(tl.int64) * outputs
        active_rows = active + row.to(tl.int64)[:, None] * inputs + inner[None, :]
        if MXFP4:
            columns = weight + (first + column) * (inputs // 2)
        else:
            columns = weight + (first + column)[None, :] * inputs + inner[:, None]
        own_scales = scales
        if SCALED or MXFP4:
            own_scales = scales + (first + column) // scaled_outputs * (inputs // scaled_inputs)
        total = multiply(
            active_rows,
            is_row,
            columns,
            is_column,
            inputs,
            BLOCK_ROWS,
            BLOCK_OUT,
            BLOCK_IN,
            own_scales,
            scaled_inputs,
            SCALED,
            MXFP4,
        )
        if BIASED:
            added = tl.load(bias + first + column, mask=is_column, other=0.0)
            total += added.to(tl.float32)[None, :]
        place = tl.load(rows + row, mask=is_row, other=0).to(tl.int64)
        total *= tl.load(shares + place, mask=is_row, other=0.0)[:, None]
        target = out + place[:, None] * outputs + column[None, :]
        mask = is_row[:, None] & is_column[None, :]
        tl.store(target, total.to(out.dtype.element_ty), mask=mask)
