"""`add_lora`: what adapters add to linear layers, as two Triton kernels.

The first computes h = scale * x . A^T, the second adds h . B^T to y. Each program takes one token:
a decode step has few tokens of an adapter, whose A and B then come from the GPU's cache. Slots,
ranks and places are read on the device, so a CUDA graph that holds these kernels serves any
adapters. Beside a prompt's many tokens, matrix products of torch are faster; outside graphs they
are used.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pando_worker.models.lora import linear
from pando_worker.models.lora.linear import LoraSite, LoraTokens

BLOCK_RANKS, BLOCK_IN, BLOCK_OUT = 16, 128, 128
MOST_TOKENS = 256  # with which the kernels are used where there is a choice


def add_lora(y: Tensor, x: Tensor, site: LoraSite, step: LoraTokens) -> None:
    """As `Ops.add_lora`. Tensors are on one device; rows of x and y are contiguous."""
    if step.runs and len(step.tokens) > MOST_TOKENS:
        linear.add_lora(y, x, site, step)
        return
    memory, sections = site.memory, len(site.sections)
    tokens, most_rank = len(step.tokens), memory.most_rank
    assert x.stride(1) == y.stride(1) == 1
    h = torch.empty(tokens, sections, most_rank, dtype=torch.float32, device=x.device)
    held = (
        memory.pages,
        memory.slot_pages,
        memory.ranks,
        memory.starts,
        step.tokens,
        step.slots,
        step.count,
        site.first,
        memory.ranks.shape[1],
        memory.slot_pages.shape[1],
        memory.page_numbers,
        most_rank,
        site.experts,
    )
    _shrink[(tokens, sections, triton.cdiv(most_rank, BLOCK_RANKS))](
        x,
        h,
        memory.scales,
        *held,
        x.shape[1],
        x.stride(0),
        BLOCK_RANKS=BLOCK_RANKS,
        BLOCK_IN=BLOCK_IN,
    )
    widest = max(section.width for section in site.sections)
    _expand[(tokens, sections, triton.cdiv(widest, BLOCK_OUT))](
        y,
        h,
        site.columns,
        *held,
        y.stride(0),
        BLOCK_RANKS=BLOCK_RANKS,
        BLOCK_OUT=BLOCK_OUT,
    )


@triton.jit
def _rows(pages, slot_pages, start, page_numbers, columns, row, mask):  # type: ignore[no-untyped-def]
    """The addresses of some rows of a matrix; `slot_pages` are its adapter's."""
    page, place = start // page_numbers, start % page_numbers
    first = (page_numbers - place) // columns
    in_page = page_numbers // columns
    later = row - first
    number = tl.where(later < 0, page, page + 1 + later // in_page)
    place = tl.where(later < 0, place + row * columns, later % in_page * columns)
    number = tl.load(slot_pages + number, mask=mask, other=0)
    return pages + number.to(tl.int64) * page_numbers + place


@triton.jit  # type: ignore[untyped-decorator]
def _shrink(  # type: ignore[no-untyped-def]
    x,
    h,
    scales,
    pages,
    slot_pages,
    ranks,
    starts,
    tokens,
    slots,
    count,
    first_section,
    all_sections,
    most_pages,
    page_numbers,
    most_rank,
    experts,
    inputs,
    x_stride,
    BLOCK_RANKS: tl.constexpr,  # noqa: N803
    BLOCK_IN: tl.constexpr,  # noqa: N803
):
    number, section = tl.program_id(0), tl.program_id(1)
    if number < tl.load(count):
        key = tl.load(slots + number)  # slot * experts + expert
        slot = key // experts
        at = slot * all_sections + first_section + key % experts * tl.num_programs(1) + section
        rank = tl.load(ranks + at)
        row = tl.program_id(2) * BLOCK_RANKS + tl.arange(0, BLOCK_RANKS)
        if tl.program_id(2) * BLOCK_RANKS < rank:
            is_row = row < rank
            start = tl.load(starts + at * 2)
            own = slot_pages + slot * most_pages
            a = _rows(pages, own, start, page_numbers, inputs, row, is_row)
            from_x = x + tl.load(tokens + number).to(tl.int64) * x_stride
            total = tl.zeros((BLOCK_RANKS,), dtype=tl.float32)
            for some in range(0, inputs, BLOCK_IN):
                column = some + tl.arange(0, BLOCK_IN)
                is_column = column < inputs
                part = tl.load(from_x + column, mask=is_column, other=0.0).to(tl.float32)
                mask = is_row[:, None] & is_column[None, :]
                weights = tl.load(a[:, None] + column[None, :], mask=mask, other=0.0)
                total += tl.sum(weights.to(tl.float32) * part[None, :], 1)
            to_h = h + (number * tl.num_programs(1) + section) * most_rank
            tl.store(to_h + row, total * tl.load(scales + at), mask=is_row)


@triton.jit  # type: ignore[untyped-decorator]
def _expand(  # type: ignore[no-untyped-def]
    y,
    h,
    columns,
    pages,
    slot_pages,
    ranks,
    starts,
    tokens,
    slots,
    count,
    first_section,
    all_sections,
    most_pages,
    page_numbers,
    most_rank,
    experts,
    y_stride,
    BLOCK_RANKS: tl.constexpr,  # noqa: N803
    BLOCK_OUT: tl.constexpr,  # noqa: N803
):
    number, section = tl.program_id(0), tl.program_id(1)
    if number < tl.load(count):
        key = tl.load(slots + number)  # slot * experts + expert
        slot = key // experts
        at = slot * all_sections + first_section + key % experts * tl.num_programs(1) + section
        rank = tl.load(ranks + at)
        first, width = tl.load(columns + 2 * section), tl.load(columns + 2 * section + 1)
        column = tl.program_id(2) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
        if (rank > 0) & (tl.program_id(2) * BLOCK_OUT < width):
            is_column = column < width
            start = tl.load(starts + at * 2 + 1)
            own = slot_pages + slot * most_pages
            from_h = h + (number * tl.num_programs(1) + section) * most_rank
            total = tl.zeros((BLOCK_OUT,), dtype=tl.float32)
            for some in range(0, rank, BLOCK_RANKS):
                row = some + tl.arange(0, BLOCK_RANKS)
                is_row = row < rank
                b = _rows(pages, own, start, page_numbers, width, row, is_row)
                mask = is_row[:, None] & is_column[None, :]
                weights = tl.load(b[:, None] + column[None, :], mask=mask, other=0.0)
                part = tl.load(from_h + row, mask=is_row, other=0.0)
                total += tl.sum(weights.to(tl.float32) * part[:, None], 0)
            to_y = y + tl.load(tokens + number).to(tl.int64) * y_stride + first + column
            before = tl.load(to_y, mask=is_column, other=0.0).to(tl.float32)
            tl.store(to_y, (before + total).to(y.dtype.element_ty), mask=is_column)
