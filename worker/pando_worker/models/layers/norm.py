"""Root mean square normalisation (arXiv:1910.07467)."""

from torch import Tensor, nn

from pando_worker.models.build import Build


class RMSNorm(nn.Module):
    """Over the last dimension, of `size`.

    Args:
        offset: as in Gemma, whose weights are distances from one
    """

    def __init__(self, build: Build, size: int, eps: float, *, offset: bool = False) -> None:
        super().__init__()
        self.weight = build.parameter(size)
        self._ops = build.ops
        self._eps = eps
        self._offset = offset

    def forward(self, x: Tensor) -> Tensor:
        return self._ops.rms_norm(x, self.weight, self._eps, self._offset)

    def after_sum(self, x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
        """x + added and its norm, of [num_tokens, size]; neither may be used any more."""
        if added is None:
            return x, self(x)
        return self._ops.add_rms_norm(x, added, self.weight, self._eps, self._offset)
