"""Layer normalisation (arXiv:1607.06450)."""

from torch import Tensor, nn

from pando_worker.models.build import Build


class LayerNorm(nn.Module):
    """Normalises the last dimension, of `size`, with weights and biases."""

    def __init__(self, build: Build, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = build.parameter(size)
        self.bias: nn.Parameter | None = build.parameter(size)
        self._eps = eps
        self._ops = build.ops

    def forward(self, x: Tensor) -> Tensor:
        return self._ops.layer_norm(x, self.weight, self.bias, self._eps)
