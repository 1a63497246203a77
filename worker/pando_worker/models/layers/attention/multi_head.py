"""A layer's attention: projections, rotary positions, and a call to the attention backend."""

from torch import Tensor, nn

from pando_worker.attention.backend import (
    AttentionBackend,
    AttentionLayer,
    HeadTurn,
    TurningBackend,
)
from pando_worker.models.build import Build
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.layers.attention.rotary import Rotation
from pando_worker.models.layers.attention.sinks import Sinks
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear, Rows
from pando_worker.models.layers.norms.rms import RMSNorm

Rotations = tuple[Rotation, ...]
"""A step's rotations, one for each rotary embedding of the model."""


class Attention(nn.Module):
    """Grouped-query attention; each rank computes a share of the heads.

    Args:
        index: of the layer
        scale: of the scores, by default head_dim ** -0.5
        window: tokens that a token sees, including itself; all by default
        bias: whether the projections to queries, keys and values have biases
        out_bias: whether the output projection has a bias
        fused: whether the first three are one tensor in the checkpoint, `qkv_proj`
        q_norm, k_norm: applied to [num_tokens, this rank's heads, head_dim] before the rotation
        rope: index of this layer's rotary embedding in the model's
        soft_cap: of the scores
        sinks: whether each head has a sink, which takes a share of its softmax
    """

    def __init__(
        self,
        build: Build,
        index: int,
        *,
        hidden_size: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float | None = None,
        window: int | None = None,
        bias: bool = False,
        out_bias: bool = False,
        fused: bool = False,
        q_norm: nn.Module | None = None,
        k_norm: nn.Module | None = None,
        rope: int = 0,
        soft_cap: float | None = None,
        sinks: bool = False,
    ) -> None:
        super().__init__()
        if heads % kv_heads:
            raise BrokenCheckpoint(
                f"num_attention_heads ({heads}) is not a multiple of num_key_value_heads"
                f" ({kv_heads})"
            )
        q_rows, kv_rows = head_rows(build, heads, kv_heads, head_dim)
        mine = build.group.share(heads, "attention heads")
        self.sinks = Sinks(build, heads, mine) if sinks else None
        self.layer = AttentionLayer(
            index=index,
            heads=len(mine),
            kv_heads=len(kv_rows.taken) // head_dim,
            head_dim=head_dim,
            v_head_dim=head_dim,
            scale=head_dim**-0.5 if scale is None else scale,
            window=None if window is None or window >= build.context_length else window,
            soft_cap=soft_cap,
            sinks=None if self.sinks is None else self.sinks.scores,
        )
        self.qkv_proj = ColumnParallelLinear(
            build,
            hidden_size,
            {"q_proj": q_rows, "k_proj": kv_rows, "v_proj": kv_rows},
            bias=bias,
            fused="qkv_proj" if fused else None,
        )
        self.q_norm, self.k_norm = q_norm, k_norm
        self.o_proj = RowParallelLinear(build, "o_proj", q_rows, hidden_size, bias=out_bias)
        self._rope = rope

    def forward(self, x: Tensor, rotations: Rotations, attention: AttentionBackend) -> Tensor:
        layer, rotation = self.layer, rotations[self._rope]
        qkv = self.qkv_proj(x).unflatten(-1, (-1, layer.head_dim))
        turn = self._turn(rotation)
        if turn is not None and isinstance(attention, TurningBackend) and attention.turns:
            return self._projected(attention.forward_turned(qkv, turn, layer))
        qk, v = qkv.tensor_split([layer.heads + layer.kv_heads], dim=1)
        if self.q_norm is None or self.k_norm is None:
            q, k = rotation.apply(qk).tensor_split([layer.heads], dim=1)
        else:
            q, k = qk.tensor_split([layer.heads], dim=1)
            q, k = rotation.apply(self.q_norm(q)), rotation.apply(self.k_norm(k))
        return self._projected(attention.forward(q, k, v, layer))

    def _projected(self, heads: Tensor) -> Tensor:
        out: Tensor = self.o_proj(heads.flatten(1))
        return out

    def _turn(self, rotation: Rotation) -> HeadTurn | None:
        """Norms and rotation as an attention backend takes them; None if it cannot."""
        q_norm, k_norm, table = self.q_norm, self.k_norm, rotation.table
        if table is None:
            return None
        if q_norm is None and k_norm is None:
            return HeadTurn(table, None, None, 0.0, offset=False)
        if not isinstance(q_norm, RMSNorm) or not isinstance(k_norm, RMSNorm):
            return None
        return HeadTurn(table, q_norm.weight, k_norm.weight, q_norm.eps, q_norm.offset)


def head_rows(build: Build, heads: int, kv_heads: int, head_dim: int) -> tuple[Rows, Rows]:
    """Output rows of the projection to queries, and of those to keys and values.

    Raises:
        UnsupportedModel: the ranks cannot share the heads evenly.
    """

    def rows(count: int, mine: range) -> Rows:
        return Rows(count * head_dim, range(mine.start * head_dim, mine.stop * head_dim))

    mine = build.group.share(heads, "attention heads")
    kv_mine = build.group.share_or_repeat(kv_heads, "key-value heads")
    return rows(heads, mine), rows(kv_heads, kv_mine)
