"""Samples the next token of every row, with the row's own parameters and random number.

The order is that of transformers and vLLM: temperature, then top-k, top-p over the tokens that
top-k keeps, min-p relative to the most likely token. Each keeps the tokens above a threshold per
row; tokens equal to it are kept. Sorting is avoided where possible.

A token is drawn by inversion: one number in [0, 1), a pure function of (seed, step), selects the
token where the cumulative weights, in vocabulary order, exceed it. No operation mixes rows, so a
request's tokens do not depend on its batch.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from pando_worker.batch import Float32, Int64, SamplingBatch
from pando_worker.runner.sampling.ops import BY_TORCH, Nucleus, SamplingOps
from pando_worker.tensors.transfer import to_device

UInt64 = NDArray[np.uint64]

# Vocabularies are searched in two steps: the best block, then the best token in it. Nearly every
# vocabulary is a multiple of 64. Measured at 32 x 131,072 on CPU: argmax takes 3.7 ms as a whole
# and 0.7 ms by blocks.
BLOCK = 64
# Fewer logits than this are searched as a whole: half the speed, but one call instead of five.
SMALL = 16_384
# Top-p first looks at this many tokens, which is enough except for flat distributions. Measured as
# above: selecting them takes 5 ms, sorting all tokens 28 ms (numpy) or 210 ms (torch).
HEAD = 256
# Selecting more than one in WIDE values costs as much as sorting all.
WIDE = 16
# Logits that are sampled at a time: drawing makes up to six copies of them.
SAMPLE_BYTES = 64 * 2**20


@torch.inference_mode()
def sample(logits: Tensor, params: SamplingBatch, ops: SamplingOps = BY_TORCH) -> Tensor:
    """Next tokens, int64 [rows]; -1 if none can be drawn, because a row's logits contain NaN or
    +inf or because every token is forbidden.

    Args:
        logits: float32 [rows, vocab_size]; -inf forbids a token
        ops: the device's own
    """
    if ops.draw is not None:
        return ops.draw(logits, to_device(_limits(params), logits.device))
    size = max(1, SAMPLE_BYTES // (logits.shape[1] * logits.itemsize))
    if len(logits) > size:
        parts = [slice(start, start + size) for start in range(0, len(logits), size)]
        return torch.cat([sample(logits[p], _rows_of(params, p), ops) for p in parts])
    best, tokens = (ops.best or _best)(logits)
    if len(drawn := np.flatnonzero(params.temperature > 0)):
        rows = to_device(drawn, logits.device)
        some = _whole_blocks(_take(logits, drawn))
        tokens.index_copy_(0, rows, _draw(some, best[rows], params, drawn, ops.nucleus))
    return tokens.masked_fill_(best - best != 0, -1)  # infinity - infinity is NaN


def _rows_of(params: SamplingBatch, rows: slice) -> SamplingBatch:
    """The parameters with which tokens are drawn, of some rows."""
    return SamplingBatch(
        temperature=params.temperature[rows],
        top_k=params.top_k[rows],
        top_p=params.top_p[rows],
        min_p=params.min_p[rows],
        seed=params.seed[rows],
        step=params.step[rows],
    )


def _limits(params: SamplingBatch) -> NDArray[np.float64]:
    """As `Draw` takes them."""
    numbers = uniforms(params.seed, params.step)
    parts = params.temperature, params.top_k, params.top_p, params.min_p, numbers
    return np.stack([part.astype(np.float64) for part in parts])


def _best(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest logit of each row and its token, [rows] each; NaN if the row has one."""
    if logits.numel() <= SMALL:
        return torch.max(logits, dim=-1)
    blocks = _blocks(_whole_blocks(logits))
    best, block = blocks.amax(dim=-1).max(dim=-1)
    return best, block * BLOCK + _pick_row(blocks, block).argmax(dim=-1)


def _draw(
    logits: Tensor, best: Tensor, params: SamplingBatch, rows: Int64, nucleus: Nucleus | None
) -> Tensor:
    """A token for each of `rows`, int64 [rows], from their logits and each row's largest."""
    device = logits.device
    temperature = to_device(params.temperature[rows], device)[:, None]
    weights = (logits - best[:, None]).div_(temperature).exp_()  # 1 for the best token
    top_k, top_p, min_p = params.top_k[rows], params.top_p[rows], params.min_p[rows]
    if (limited := (top_k > 0) & (top_k < logits.shape[1])).any():
        _keep(weights, logits, _top_k_threshold(logits, np.where(limited, top_k, 0)))
    if (top_p < 1).any() or (min_p > 0).any():
        threshold = to_device(min_p, device)
        if (top_p < 1).any():
            threshold = torch.maximum(threshold, _top_p_threshold(weights, top_p, nucleus))
        _keep(weights, weights, threshold)
    return _invert(weights, to_device(uniforms(params.seed[rows], params.step[rows]), device))


def _keep(weights: Tensor, values: Tensor, threshold: Tensor) -> None:
    """Set weights to 0 where values [rows, vocab_size] are below their row's threshold [rows].

    A comparison that writes floats, then a product: measured at a quarter of `masked_fill_`'s time.
    """
    weights *= torch.ge(values, threshold[:, None], out=torch.empty_like(values))


def _top_k_threshold(logits: Tensor, top_k: Int64) -> Tensor:
    """The k-th largest logit of each row, [rows]; -inf if top_k is 0."""
    rows, count = np.flatnonzero(top_k), int(top_k.max())
    kth = to_device(count - top_k[rows], logits.device)[:, None]
    edge = _largest(_take(logits, rows), count).gather(1, kth)[:, 0]
    return logits.new_full((len(logits),), -torch.inf).index_copy_(
        0, to_device(rows, logits.device), edge
    )


def _top_p_threshold(weights: Tensor, top_p: Float32, nucleus: Nucleus | None) -> Tensor:
    """The lowest weight in the smallest set of tokens that holds top_p of the sum, [rows]; 0 if
    top_p is 1, so that rounding removes nothing."""
    device, threshold = weights.device, weights.new_zeros(len(weights))
    if nucleus is not None:
        limited = np.flatnonzero(top_p < 1)
        lowest = nucleus(_take(weights, limited), to_device(top_p[limited], device))
        return threshold.index_copy_(0, to_device(limited, device), lowest)
    goal = to_device(top_p, device) * weights.sum(dim=-1)
    rows = np.flatnonzero(top_p < 1)
    # The host must check whether the head suffices; on a GPU this would wait for the device.
    if weights.is_cpu and weights.shape[1] > WIDE * HEAD:
        head = _largest(_take(weights, rows), HEAD)
        threshold[rows] = _nucleus_edge(head, goal[rows])
        rows = rows[(head.sum(dim=-1) < goal[rows]).numpy()]
    if len(rows):
        ordered = _largest(_take(weights, rows), weights.shape[1])
        index = to_device(rows, device)
        threshold.index_copy_(0, index, _nucleus_edge(ordered, goal[index]))
    return threshold


def _take(values: Tensor, rows: Int64) -> Tensor:
    """Some rows, or all of them without a copy."""
    if len(rows) == len(values):
        return values
    return values.index_select(0, to_device(rows, values.device))


def _nucleus_edge(ascending: Tensor, goal: Tensor) -> Tensor:
    """The last weight, from the largest down, before which the sum is below `goal`: [rows]."""
    held = ascending.cumsum(dim=-1)
    edge = torch.searchsorted(held, held[:, -1:] - goal[:, None], right=True)
    return ascending.gather(1, edge.clamp_(max=ascending.shape[1] - 1))[:, 0]


def _largest(values: Tensor, count: int) -> Tensor:
    """The `count` largest values of each row, the largest last, [rows, count]."""
    if WIDE * count >= values.shape[1]:
        # Measured: numpy's vectorised sort takes a fifth to an eighth of the time of torch's.
        ordered = torch.from_numpy(np.sort(values)) if values.is_cpu else values.sort().values
        return ordered[:, -count:]
    blocks = _blocks(values)
    if blocks.shape[1] >= 4 * count:
        # The blocks with the largest maxima contain the values: no other block has a value above
        # these `count` maxima.
        chosen = blocks.amax(dim=-1).topk(count, sorted=False).indices
        blocks = blocks.gather(1, chosen[:, :, None].expand(-1, -1, BLOCK))
    return blocks.flatten(1).topk(count).values.flip(-1)


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """The token where the cumulative weights exceed `uniform` of their sum, int64 [rows].

    Args:
        weights: float32 [rows, vocab_size]; a token of weight 0 is never picked
        uniform: float64 [rows], in [0, 1 - 2^-52]
    """
    blocks = _blocks(weights)
    mass = blocks.sum(dim=-1).cumsum(dim=-1, dtype=torch.float64)  # [rows, blocks]
    target = uniform[:, None] * mass[:, -1:]
    block = torch.searchsorted(mass, target, right=True)
    block.clamp_(max=mass.shape[1] - 1)  # for rows with NaN, which have no token
    before = functional.pad(mass, (1, 0)).gather(1, block)
    inside = _pick_row(blocks, block[:, 0]).cumsum(dim=-1, dtype=torch.float64)
    # A block's sum is rounded, so the remaining target may exceed the sum of its tokens.
    rest = torch.minimum(target - before, inside[:, -1:] * (1 - 2.0**-52))
    return (block * BLOCK + torch.searchsorted(inside, rest, right=True))[:, 0]


def _whole_blocks(logits: Tensor) -> Tensor:
    """With forbidden tokens behind the vocabulary, up to the end of a block."""
    if remainder := logits.shape[1] % BLOCK:
        return functional.pad(logits, (0, BLOCK - remainder), value=-torch.inf)
    return logits


def _blocks(values: Tensor) -> Tensor:
    """[rows, vocab_size] as [rows, vocab_size / BLOCK, BLOCK]"""
    return values.reshape(len(values), values.shape[1] // BLOCK, BLOCK)


def _pick_row(blocks: Tensor, index: Tensor) -> Tensor:
    """One block per row, [rows, BLOCK], of [rows, blocks, BLOCK]; index is [rows]."""
    return blocks.gather(1, index[:, None, None].expand(-1, 1, BLOCK))[:, 0]


def uniforms(seed: Int64, step: Int64) -> NDArray[np.float64]:
    """Numbers in [0, 1 - 2^-52], [rows]: the high 52 bits of splitmix64 of seed and step."""
    bits = _splitmix64(_splitmix64(seed.view(np.uint64)) + step.view(np.uint64))
    return (bits >> np.uint64(12)).astype(np.float64) * 2.0**-52


def _splitmix64(x: UInt64) -> UInt64:
    """One step of splitmix64 (Steele, Lea, Flood 2014) from state x."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
