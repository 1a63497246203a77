"""One layer of a decoder: attention, then feed-forward, each added to the residual stream."""

from torch import Tensor, nn

from pando_worker.attention.backend import AttentionBackend
from pando_worker.models.layers.attention import Attention, Rotations
from pando_worker.models.layers.norm import RMSNorm


class PreNormBlock(nn.Module):
    """Llama's: each half normalises what it reads. The arguments have their checkpoint's names."""

    def __init__(
        self,
        *,
        input_layernorm: RMSNorm,
        self_attn: Attention,
        post_attention_layernorm: RMSNorm,
        mlp: nn.Module,
    ) -> None:
        super().__init__()
        self.input_layernorm = input_layernorm
        self.self_attn = self_attn
        self.post_attention_layernorm = post_attention_layernorm
        self.mlp = mlp

    def forward(self, x: Tensor, rotations: Rotations, attention: AttentionBackend) -> Tensor:
        attended = self.self_attn(self.input_layernorm(x), rotations, attention)
        x, normed = self.post_attention_layernorm.after_sum(x, attended)
        out: Tensor = x + self.mlp(normed)
        return out


class SandwichNormBlock(nn.Module):
    """Gemma's: each half normalises what it reads and what it adds."""

    def __init__(
        self,
        *,
        input_layernorm: nn.Module,
        self_attn: Attention,
        post_attention_layernorm: nn.Module,
        pre_feedforward_layernorm: nn.Module,
        mlp: nn.Module,
        post_feedforward_layernorm: nn.Module,
    ) -> None:
        super().__init__()
        self.input_layernorm = input_layernorm
        self.self_attn = self_attn
        self.post_attention_layernorm = post_attention_layernorm
        self.pre_feedforward_layernorm = pre_feedforward_layernorm
        self.mlp = mlp
        self.post_feedforward_layernorm = post_feedforward_layernorm

    def forward(self, x: Tensor, rotations: Rotations, attention: AttentionBackend) -> Tensor:
        attended = self.self_attn(self.input_layernorm(x), rotations, attention)
        x = x + self.post_attention_layernorm(attended)
        fed = self.mlp(self.pre_feedforward_layernorm(x))
        out: Tensor = x + self.post_feedforward_layernorm(fed)
        return out
