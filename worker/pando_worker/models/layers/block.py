"""One layer of a decoder: attention, then feed-forward, each added to the residual stream.

The stream between layers is x, or x + added if the next norm computes the sum.
"""

from torch import Tensor, nn

from pando_worker.attention.backend import AttentionBackend
from pando_worker.models.layers.attention.latent import LatentAttention
from pando_worker.models.layers.attention.multi_head import Attention, Rotations
from pando_worker.models.layers.norms.rms import RMSNorm


class PreNormBlock(nn.Module):
    """Llama's layer: each half normalises its input. Arguments have the checkpoint's names."""

    def __init__(
        self,
        *,
        input_layernorm: RMSNorm,
        self_attn: Attention | LatentAttention,
        post_attention_layernorm: RMSNorm,
        mlp: nn.Module,
    ) -> None:
        super().__init__()
        self.input_layernorm = input_layernorm
        self.self_attn = self_attn
        self.post_attention_layernorm = post_attention_layernorm
        self.mlp = mlp

    def forward(
        self, x: Tensor, added: Tensor | None, rotations: Rotations, attention: AttentionBackend
    ) -> tuple[Tensor, Tensor]:
        x, normed = self.input_layernorm.after_sum(x, added)
        attended = self.self_attn(normed, rotations, attention)
        x, normed = self.post_attention_layernorm.after_sum(x, attended)
        return x, self.mlp(normed)


class SandwichNormBlock(nn.Module):
    """Gemma's layer: each half normalises its input and its output."""

    def __init__(
        self,
        *,
        input_layernorm: RMSNorm,
        self_attn: Attention,
        post_attention_layernorm: RMSNorm,
        pre_feedforward_layernorm: RMSNorm,
        mlp: nn.Module,
        post_feedforward_layernorm: RMSNorm,
    ) -> None:
        super().__init__()
        self.input_layernorm = input_layernorm
        self.self_attn = self_attn
        self.post_attention_layernorm = post_attention_layernorm
        self.pre_feedforward_layernorm = pre_feedforward_layernorm
        self.mlp = mlp
        self.post_feedforward_layernorm = post_feedforward_layernorm

    def forward(
        self, x: Tensor, added: Tensor | None, rotations: Rotations, attention: AttentionBackend
    ) -> tuple[Tensor, Tensor]:
        x, normed = self.input_layernorm.after_sum(x, added)
        attended = self.post_attention_layernorm(self.self_attn(normed, rotations, attention))
        x, normed = self.pre_feedforward_layernorm.after_sum(x, attended)
        return x, self.post_feedforward_layernorm(self.mlp(normed))
