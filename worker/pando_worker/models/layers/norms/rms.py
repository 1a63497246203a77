"""Root mean square normalisation (arXiv:1910.07467)."""

from torch import Tensor, nn

from pando_worker.models.build import Build


class RMSNorm(nn.Module):
    """Normalises the last dimension, of `size`.

    Args:
        offset: add 1 to the weights, as in Gemma
    """

    def __init__(self, build: Build, size: int, eps: float, *, offset: bool = False) -> None:
        super().__init__()
        self.weight = build.parameter(size)
        self._ops = build.ops
        self._eps = eps
        self._offset = offset

    @property
    def eps(self) -> float:
        return self._eps

    @property
    def offset(self) -> bool:
        return self._offset

    def forward(self, x: Tensor) -> Tensor:
        return self._ops.rms_norm(x, self.weight, self._eps, self._offset)

    def after_sum(self, x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
        """x + added and its norm, [num_tokens, size] each. May overwrite x and added."""
        if added is None:
            return x, self(x)
        return self._ops.add_rms_norm(x, added, self.weight, self._eps, self._offset)
