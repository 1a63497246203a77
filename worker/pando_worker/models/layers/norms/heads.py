"""Root mean square normalisation over all heads of a token."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from pando_worker.models.build import Build, Fill
from pando_worker.models.layers.linear import Rows


class HeadsRMSNorm(nn.Module):
    """Each rank has a share of the heads and normalises by the mean over all heads.

    Args:
        name: in the checkpoint
        rows: outputs of the normalised projection
    """

    def __init__(self, build: Build, name: str, rows: Rows, eps: float) -> None:
        super().__init__()
        self.weight = build.parameter(len(rows.taken))
        self._name = name
        self._rows = rows
        self._eps = eps
        self._group = build.group
        self._ops = build.ops

    def forward(self, x: Tensor) -> Tensor:  # [num_tokens, this rank's heads, head_dim]
        flat = x.flatten(1)
        if self._group.size == 1:
            return self._ops.rms_norm(flat, self.weight, self._eps).view_as(x)
        # The mean of the ranks' means is exact: all have equally many heads and repeat each
        # equally.
        wide = flat.float()
        square = self._group.all_reduce(wide.square().mean(dim=-1, keepdim=True))
        scale = torch.rsqrt(square / self._group.size + self._eps)
        return ((wide * scale).to(x.dtype) * self.weight).view_as(x)

    def fills(self) -> Iterator[Fill]:
        part = slice(self._rows.taken.start, self._rows.taken.stop)
        yield Fill(f"{self._name}.weight", (self._rows.total,), (part,), self.weight)
