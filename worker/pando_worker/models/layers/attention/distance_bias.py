"""Biases of attention scores by the distance between query and key (T5, arXiv:1910.10683).

Near distances have a bias each, farther ones share one by the logarithm of the distance.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from pando_worker.attention.backend import DistanceBias
from pando_worker.models.build import Build, Fill


class RelativePositions(nn.Module):
    """The biases of each head; each rank has those of its own.

    Args:
        buckets: of distances, each with a bias
        farthest: distance from which on all share the last one
    """

    def __init__(self, build: Build, heads: int, *, buckets: int, farthest: int) -> None:
        super().__init__()
        self._mine = build.group.share(heads, "attention heads")
        self._heads, self._buckets, self._farthest = heads, buckets, farthest
        self._device = build.device
        self.biases = build.parameter(buckets, len(self._mine))

    def fills(self) -> Iterator[Fill]:
        part = (slice(0, self._buckets), slice(self._mine.start, self._mine.stop))
        shape = (self._buckets, self._heads)
        yield Fill("relative_attention_bias.weight", shape, part, self.biases)

    def causal(self) -> DistanceBias:
        """For attention to the query's own token and those before it."""
        of = _bucket(torch.arange(self._farthest + 1), self._buckets, self._farthest)
        return DistanceBias(self.biases, of.to(self._device, torch.int32))

    def between(self, length: int) -> Tensor:
        """For attention of all tokens of a text to each other, [heads, length, length]. Half of
        the buckets are for keys behind the query."""
        positions = torch.arange(length, device=self._device)
        ahead = positions[None] - positions[:, None]
        half = self._buckets // 2
        of = _bucket(ahead.abs(), half, self._farthest) + (ahead > 0) * half
        return self.biases[of].permute(2, 0, 1).contiguous()


def _bucket(distances: Tensor, buckets: int, farthest: int) -> Tensor:
    """Of each distance, at least 0: half of the buckets are for one distance each."""
    exact = buckets // 2
    # In float32, as transformers computes them: a bucket's limit may be a rounding error away.
    part = torch.log(distances.float().clamp(min=1) / exact) / math.log(farthest / exact)
    far = (exact + (part * (buckets - exact)).to(torch.int64)).clamp(max=buckets - 1)
    return torch.where(distances < exact, distances, far)
