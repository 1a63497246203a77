"""Picks the next token of every row, each by its own parameters and its own random numbers.

The order is that of transformers and vLLM: temperature, then top-k, top-p over what top-k left,
min-p relative to the most likely token. Each of them keeps the tokens above some score, so a row's
filter is one threshold; tokens that tie with it stay.

The draw takes the best of score + Gumbel noise, which is a draw from the softmax. The noise is a
pure function of (seed, step, token id), so a request's tokens do not depend on its batch.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.runner.batch import Int64, SamplingBatch

UInt64 = NDArray[np.uint64]


@torch.inference_mode()
def sample(logits: Tensor, params: SamplingBatch) -> Tensor:
    """Next tokens, int64 [rows]; -1 where a row's logits have no finite maximum.

    Args:
        logits: float32 [rows, vocab_size]; -inf forbids a token
    """
    best, tokens = logits.max(dim=-1)
    drawn = np.flatnonzero(params.temperature > 0)
    if len(drawn):
        rows = torch.from_numpy(drawn).to(logits.device)
        tokens[rows] = _draw(logits[rows] - best[rows, None], params, drawn)
    return tokens.masked_fill_(~best.isfinite(), -1)


def _draw(scores: Tensor, params: SamplingBatch, rows: Int64) -> Tensor:
    """A token for each of `rows`, int64 [rows]; scores [rows, vocab_size] are 0 at the best."""
    device, vocab_size = scores.device, scores.shape[1]
    scores /= torch.from_numpy(params.temperature[rows]).to(device)[:, None]
    threshold = torch.from_numpy(params.min_p[rows]).to(device).log()
    top_k, top_p = params.top_k[rows], params.top_p[rows]
    sorts = np.flatnonzero(((top_k > 0) & (top_k < vocab_size)) | (top_p < 1))
    if len(sorts):
        index = torch.from_numpy(sorts).to(device)
        top = _top_threshold(scores[index], top_k[sorts], top_p[sorts])
        threshold[index] = torch.maximum(threshold[index], top)
    scores.masked_fill_(scores < threshold[:, None], -torch.inf)
    scores += gumbel_noise(params.seed[rows], params.step[rows], vocab_size, device)
    return scores.argmax(dim=-1)


def _top_threshold(scores: Tensor, top_k: Int64, top_p: NDArray[np.float32]) -> Tensor:
    """The lowest score that top-k and top-p keep, [rows]."""
    vocab_size = scores.shape[1]
    counts = np.where(top_k > 0, np.minimum(top_k, vocab_size), vocab_size)
    top = scores.topk(int(counts.max())).values
    count = torch.from_numpy(counts).to(scores.device)[:, None]
    outside = torch.arange(top.shape[1], device=scores.device) >= count
    probs = top.masked_fill(outside, -torch.inf).softmax(dim=-1)
    # A token stays while those before it hold less than top_p. At 1 rounding must not end that.
    mass = np.where(top_p < 1, top_p, np.inf).astype(np.float32)
    before = probs.cumsum(dim=-1) - probs
    keep = (before < torch.from_numpy(mass).to(scores.device)[:, None]) & ~outside
    last = keep.sum(dim=-1, keepdim=True).sub_(1).clamp_(min=0)
    return top.gather(1, last)[:, 0]


def gumbel_noise(seed: Int64, step: Int64, vocab_size: int, device: torch.device) -> Tensor:
    """Standard Gumbel noise, float32 [rows, vocab_size]; seed and step are [rows].

    Counter-based: token t of a row gets murmur3's 32-bit finaliser, twice, of t and the halves of
    a 64-bit key that splitmix64 makes of seed and step.
    """
    key = _splitmix64(_splitmix64(seed.view(np.uint64)) + step.view(np.uint64))
    halves = torch.from_numpy(key.view(np.int32).reshape(-1, 2)).to(device)
    bits = torch.arange(vocab_size, dtype=torch.int32, device=device) ^ halves[:, :1]
    bits = _murmur3_mix(_murmur3_mix(bits) ^ halves[:, 1:])
    # 31 bits to (0, 1). Rounding must not give 1; small values, which win, keep their precision.
    uniform = bits.bitwise_and_(0x7FFFFFFF).float().add_(0.5).mul_(2.0**-31)
    exponential = uniform.clamp_(max=1 - 2.0**-24).neg_().log1p_().neg_()
    return exponential.log_().neg_()


def _splitmix64(x: UInt64) -> UInt64:
    """One step of splitmix64 (Steele, Lea, Flood 2014) from state x."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _murmur3_mix(bits: Tensor) -> Tensor:
    """murmur3's 32-bit finaliser (Appleby), in place on int32; shifts there are arithmetic."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits ^= (bits >> shift).bitwise_and_((1 << (32 - shift)) - 1)
        bits *= factor - (1 << 32)
    bits ^= (bits >> 16).bitwise_and_(0xFFFF)
    return bits
