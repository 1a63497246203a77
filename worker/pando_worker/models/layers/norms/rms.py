"""Root mean square normalisation (arXiv:1910.07467)."""

from torch import Tensor, nn

from pando_worker.models.build import Build


class RMSNorm(nn.Module):
    """Normalises the last dimension, of `size`.

    Args:
        offset: add 1 to the weights, as in Gemma

    Attributes:
        sums: whether `after_sum` is given this rank's part of what is added
    """

    def __init__(self, build: Build, size: int, eps: float, *, offset: bool = False) -> None:
        super().__init__()
        self.weight = build.parameter(size)
        self._ops = build.ops
        self._group = build.group
        self._eps = eps
        self._offset = offset
        self.sums = build.sums_in_norms and build.group.size > 1

    @property
    def eps(self) -> float:
        return self._eps

    @property
    def offset(self) -> bool:
        return self._offset

    def forward(self, x: Tensor) -> Tensor:
        return self._ops.rms_norm(x, self.weight, self._eps, self._offset)

    def after_sum(self, x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
        """x + added and its norm, [num_tokens, size] each. May overwrite x and added.

        Args:
            added: whole, or if the norm `sums`, this rank's part
        """
        if added is None:
            return x, self(x)
        if self.sums:
            fused = self._ops.sum_norm
            if fused is not None and fused.takes(x):
                return fused.run(x, added, self.weight, self._eps, self._offset)
            added = self._group.all_reduce(added)
        return self._ops.add_rms_norm(x, added, self.weight, self._eps, self._offset)
