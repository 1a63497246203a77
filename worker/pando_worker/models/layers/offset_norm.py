"""Root mean square normalisation as in Gemma, whose weights are distances from one."""

from torch import Tensor, nn

from pando_worker.models.build import Build


class OffsetRMSNorm(nn.Module):
    """Over the last dimension, of `size`, times 1 + weight, in float32."""

    def __init__(self, build: Build, size: int, eps: float) -> None:
        super().__init__()
        self.weight = build.parameter(size)
        self._ops = build.ops
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self._ops.offset_rms_norm(x, self.weight, self._eps)

    def after_sum(self, x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
        """x + added and its norm, of [num_tokens, size]; neither may be used any more."""
        if added is None:
            return x, self(x)
        return self._ops.add_offset_rms_norm(x, added, self.weight, self._eps)
