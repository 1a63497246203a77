"""Feed-forward layers."""

from torch import Tensor, nn

from pando_worker.models.build import Build
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear, Rows


class GatedMLP(nn.Module):
    """SwiGLU (arXiv:2002.05202): down(silu(gate(x)) * up(x)).

    Args:
        gelu: use gelu instead of silu
        fused: whether gate and up are one tensor in the checkpoint, `gate_up_proj`
    """

    def __init__(
        self,
        build: Build,
        hidden_size: int,
        intermediate_size: int,
        *,
        bias: bool = False,
        fused: bool = False,
        gelu: bool = False,
    ) -> None:
        super().__init__()
        self._ops = build.ops
        self._gelu = gelu
        rows = Rows(intermediate_size, build.group.share(intermediate_size, "intermediate_size"))
        self.gate_up_proj = ColumnParallelLinear(
            build,
            hidden_size,
            {"gate_proj": rows, "up_proj": rows},
            bias=bias,
            fused="gate_up_proj" if fused else None,
        )
        self.down_proj = RowParallelLinear(build, "down_proj", rows, hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:  # [num_tokens, hidden_size]
        out: Tensor = self.down_proj(self._ops.gated(self.gate_up_proj(x), self._gelu))
        return out
