"""`draw_tokens`: the next token of each row in one Triton kernel, without sorting.

It computes what `runner/sampling/sampler.py` does with many of torch's kernels. One program samples
one row, in passes over its logits: the largest one; a search for the threshold of top-k, and one
for that of top-p; the sum of what is kept; and the token at which the sum exceeds the row's random
number. Greedy rows end after the first pass.

The searches split the range of float32 numbers, by the order of their bits, into four at a time:
16 passes at most, in which lanes add up counts or weights on their own. All sums have a fixed
order, so a row's token depends on nothing but the row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048  # logits that a program looks at together
WARPS = 8


def draw_tokens(logits: Tensor, limits: Tensor) -> Tensor:
    """Next tokens, int64 [rows]; -1 as `sample` gives it.

    Args:
        logits: float32 [rows, vocab_size]; -inf forbids a token
        limits: float64 [5, rows]: temperature, top_k, top_p, min_p and a number in [0, 1), as in
            `SamplingBatch`
    """
    rows, vocabulary = logits.shape
    assert logits.dtype == torch.float32 and logits.stride(1) == 1
    assert limits.dtype == torch.float64 and limits.shape == (5, rows) and limits.is_contiguous()
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    _draw[(rows,)](
        logits, limits, tokens, rows, vocabulary, logits.stride(0), BLOCK=BLOCK, num_warps=WARPS
    )
    return tokens


@triton.jit
def _ordered(x):  # type: ignore[no-untyped-def]
    """Integers in the order of float32 numbers."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit  # type: ignore[untyped-decorator]
def _sum_above(  # type: ignore[no-untyped-def]
    row,
    vocabulary,
    best,
    temperature,
    floor,
    first,
    second,
    third,
    COUNTED: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """The weights, or with COUNTED the number, of logits from each of three thresholds on; those
    below `floor` do not count. Thresholds are as `_ordered` gives them."""
    one = tl.zeros((BLOCK,), dtype=tl.float32)
    two = tl.zeros((BLOCK,), dtype=tl.float32)
    three = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, vocabulary, BLOCK):
        token = start + tl.arange(0, BLOCK)
        logit = tl.load(row + token, mask=token < vocabulary, other=-float("inf"))
        order = _ordered(logit)
        is_in = (token < vocabulary) & (order >= floor)
        if COUNTED:
            weight = is_in.to(tl.float32)
        else:
            weight = tl.where(is_in, tl.exp((logit - best) / temperature), 0.0)
        one += tl.where(order >= first, weight, 0.0)
        two += tl.where(order >= second, weight, 0.0)
        three += tl.where(order >= third, weight, 0.0)
    return tl.sum(one, 0), tl.sum(two, 0), tl.sum(three, 0)


@triton.jit  # type: ignore[untyped-decorator]
def _threshold(  # type: ignore[no-untyped-def]
    row,
    vocabulary,
    best,
    temperature,
    floor,
    goal,
    COUNTED: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """The highest threshold from which on the weights, or with COUNTED the number, of logits reach
    the goal, which is above 0."""
    low = floor.to(tl.int64)  # from here on they do
    high = _ordered(best).to(tl.int64) + 1  # from here on they do not
    while high - low > 1:
        step = (high - low) // 4
        first = low + tl.maximum(step, 1)
        second = tl.minimum(low + tl.maximum(2 * step, 1), high - 1)
        third = tl.minimum(low + tl.maximum(3 * step, 1), high - 1)
        one, two, three = _sum_above(
            row,
            vocabulary,
            best,
            temperature,
            floor,
            first.to(tl.int32),
            second.to(tl.int32),
            third.to(tl.int32),
            COUNTED,
            BLOCK,
        )
        if three >= goal:
            low = third
        elif two >= goal:
            low = second
            high = third
        elif one >= goal:
            low = first
            high = second
        else:
            high = first
        # Of as many as asked for, a higher threshold keeps the same or too few.
        is_exact = (one == goal) | (two == goal) | (three == goal)
        high = tl.where(COUNTED & is_exact, low + 1, high)
    return low.to(tl.int32)


@triton.jit
def _kept(  # type: ignore[no-untyped-def]
    row,
    token,
    vocabulary,
    best,
    temperature,
    floor,
    least,
):
    """Weights of tokens, 0 for those below the thresholds."""
    logit = tl.load(row + token, mask=token < vocabulary, other=-float("inf"))
    weight = tl.exp((logit - best) / temperature)
    return tl.where((_ordered(logit) >= floor) & (weight >= least), weight, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]
    logits,
    limits,
    tokens,
    rows,
    vocabulary,
    stride,
    BLOCK: tl.constexpr,  # noqa: N803
):
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * stride
    lanes = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    place = tl.zeros((BLOCK,), dtype=tl.int32)
    is_broken = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, vocabulary, BLOCK):
        token = start + lanes
        logit = tl.load(row + token, mask=token < vocabulary, other=-float("inf"))
        is_broken |= (logit != logit).to(tl.int32)
        place = tl.where(logit > largest, token, place)
        largest = tl.where(logit > largest, logit, largest)
    best = tl.max(largest, 0)
    found = tl.min(tl.where(largest == best, place, vocabulary), 0)  # the first of equal ones
    # NaN, infinity, or every token is forbidden.
    is_valid = (tl.max(is_broken, 0) == 0) & (tl.abs(best) < float("inf"))
    temperature = tl.load(limits + index).to(tl.float32)
    if (temperature > 0) & is_valid:
        top_k = tl.load(limits + rows + index).to(tl.float32)
        top_p = tl.load(limits + 2 * rows + index).to(tl.float32)
        least = tl.load(limits + 3 * rows + index).to(tl.float32)
        floor = _ordered(best) * 0 - 0x7FFFFFFF
        if (top_k > 0) & (top_k < vocabulary):
            floor = _threshold(row, vocabulary, best, temperature, floor, top_k, True, BLOCK)
        if top_p < 1:
            total, _, _ = _sum_above(
                row, vocabulary, best, temperature, floor, floor, floor, floor, False, BLOCK
            )
            goal = top_p * total
            floor = _threshold(row, vocabulary, best, temperature, floor, goal, False, BLOCK)
        whole = best.to(tl.float64) * 0
        for start in range(0, vocabulary, BLOCK):
            weight = _kept(row, start + lanes, vocabulary, best, temperature, floor, least)
            whole += tl.sum(weight, 0).to(tl.float64)
        target = whole * tl.load(limits + 4 * rows + index)
        before, start = best.to(tl.float64) * 0, found * 0
        weight = _kept(row, lanes, vocabulary, best, temperature, floor, least)
        inside = tl.sum(weight, 0).to(tl.float64)
        while (before + inside <= target) & (start + BLOCK < vocabulary):
            before += inside
            start += BLOCK
            weight = _kept(row, start + lanes, vocabulary, best, temperature, floor, least)
            inside = tl.sum(weight, 0).to(tl.float64)
        held = tl.cumsum(weight, 0).to(tl.float64)
        picked = (held > target - before) & (weight > 0)
        found = tl.min(tl.where(picked, start + lanes, vocabulary), 0)
        if found == vocabulary:  # by rounding: the last one
            found = tl.max(tl.where(weight > 0, start + lanes, -1), 0)
    tl.store(tokens + index, tl.where(is_valid, found, -1).to(tl.int64))
