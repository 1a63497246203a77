"""`list_pages`: the pages of a step's rows, listed from a table on the device, as a Triton kernel.

It computes what `attention.device_pages.list_pages` does with several kernels of torch, in one.
"""

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # pages that one program lists


def list_pages(
    table: Tensor, rows: Tensor, firsts: Tensor, indptr: Tensor, count: int, most: int
) -> Tensor:
    """A `PageLister`."""
    assert table.stride(1) == rows.stride(0) == firsts.stride(0) == indptr.stride(0) == 1
    out = table.new_empty(count)
    grid = len(rows), triton.cdiv(most, BLOCK)
    _list_pages[grid](table, table.stride(0), rows, firsts, indptr, out, BLOCK=BLOCK)
    return out


# Arrays are parts of others, which begin anywhere: one variant for all, compiled at the start.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize_on_alignment=["table", "rows", "firsts", "indptr", "out"]
)
def _list_pages(  # type: ignore[no-untyped-def]
    table,
    width,
    rows,
    firsts,
    indptr,
    out,
    BLOCK: tl.constexpr,  # noqa: N803
):
    index = tl.program_id(0)
    begin, end = tl.load(indptr + index), tl.load(indptr + index + 1)
    place = begin + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    # A table of many long rows has more numbers than 32 bits count.
    row = table + tl.load(rows + index).to(tl.int64) * width + tl.load(firsts + index)
    is_own = place < end
    tl.store(out + place, tl.load(row + place - begin, mask=is_own), mask=is_own)
