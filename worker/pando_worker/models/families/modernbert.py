"""ModernBERT (arXiv:2412.13663): rotary positions, norms before each part, gated feed-forward, and
in most layers a window on both sides of a token."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from torch import Tensor, nn

from pando_worker.attention.whole import WholeAttention
from pando_worker.models.build import Build
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.layer_types import LayerType
from pando_worker.models.layers.attention.rotary import RotaryEmbedding, Rotation
from pando_worker.models.layers.text_encoder import (
    ACTIVATIONS,
    Activation,
    NamedNorm,
    TextEncoder,
    Texts,
    linear,
)
from pando_worker.models.layers.vocabulary import VocabularyTable
from pando_worker.models.rope import Count, DefaultRope, Positive


class _LayerRope(msgspec.Struct, frozen=True, kw_only=True):
    rope_type: Literal["default"] = "default"
    rope_theta: Positive


class _Ropes(msgspec.Struct, frozen=True, kw_only=True):
    full_attention: _LayerRope
    sliding_attention: _LayerRope


class Config(msgspec.Struct, frozen=True, kw_only=True):
    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    intermediate_size: Count
    hidden_activation: Activation = "gelu"
    norm_eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    local_attention: Count = 128
    global_attn_every_n_layers: Count = 3
    layer_types: tuple[LayerType, ...] | None = None
    global_rope_theta: Positive = 160_000.0
    local_rope_theta: Positive = 10_000.0
    rope_parameters: _Ropes | None = None  # in files of transformers 5
    classifier_bias: bool = False
    classifier_activation: Activation = "gelu"

    @property
    def windowed(self) -> Sequence[bool]:
        """Of each layer, whether its tokens see a window only."""
        if self.layer_types is None:
            return [
                index % self.global_attn_every_n_layers > 0
                for index in range(self.num_hidden_layers)
            ]
        if len(self.layer_types) != self.num_hidden_layers:
            raise BrokenCheckpoint(
                f"{len(self.layer_types)} layer_types for {self.num_hidden_layers} layers"
            )
        return [kind == "sliding_attention" for kind in self.layer_types]

    def theta(self, *, is_windowed: bool) -> float:
        if ropes := self.rope_parameters:
            return (ropes.sliding_attention if is_windowed else ropes.full_attention).rope_theta
        return self.local_rope_theta if is_windowed else self.global_rope_theta

    def norm(self, build: Build, name: str) -> NamedNorm:
        return NamedNorm(build, name, self.hidden_size, self.norm_eps, biased=self.norm_bias)


class _NormedTable(nn.Module):
    def __init__(self, build: Build, config: Config) -> None:
        super().__init__()
        self.words = VocabularyTable(build, "tok_embeddings", config.vocab_size, config.hidden_size)
        self.start_norm = config.norm(build, "norm")

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.start_norm(self.words(ids))
        return out


class _GatedBlock(nn.Module):
    """
    Args:
        is_first: behind the embeddings' norm it has none of its own
    """

    def __init__(self, build: Build, config: Config, *, is_windowed: bool, is_first: bool) -> None:
        super().__init__()
        size, inner = config.hidden_size, config.intermediate_size
        self.first_norm = None if is_first else config.norm(build, "attn_norm")
        self.qkv = linear(build, size, [("attn.Wqkv", 3 * size)], bias=config.attention_bias)
        self.attention_out = linear(build, size, [("attn.Wo", size)], bias=config.attention_bias)
        self.second_norm = config.norm(build, "mlp_norm")
        self.inner_in = linear(build, size, [("mlp.Wi", 2 * inner)], bias=config.mlp_bias)
        self.inner_out = linear(build, inner, [("mlp.Wo", size)], bias=config.mlp_bias)
        self._activation = ACTIVATIONS[config.hidden_activation]
        self._heads = config.num_attention_heads
        self._scale = (size // self._heads) ** -0.5
        self._reach = config.local_attention // 2 if is_windowed else None
        self.is_windowed = is_windowed

    def forward(self, x: Tensor, rotation: Rotation, attention: WholeAttention) -> Tensor:
        normed = x if self.first_norm is None else self.first_norm(x)
        q, k, v = (
            part.unflatten(-1, (self._heads, -1)) for part in self.qkv(normed).chunk(3, dim=-1)
        )
        attended = attention.attend(
            rotation.apply(q), rotation.apply(k), v, self._scale, reach=self._reach
        )
        x = x + self.attention_out(attended)
        own, gate = self.inner_in(self.second_norm(x)).chunk(2, dim=-1)
        out: Tensor = x + self.inner_out(self._activation(own) * gate)
        return out


class _ModernBertBody(nn.Module):
    def __init__(self, build: Build, config: Config) -> None:
        super().__init__()
        self.embeddings = _NormedTable(build, config)
        self.layers = nn.ModuleList(
            _GatedBlock(build, config, is_windowed=is_windowed, is_first=index == 0)
            for index, is_windowed in enumerate(config.windowed)
        )
        self.end_norm = config.norm(build, "final_norm")
        head_dim = config.hidden_size // config.num_attention_heads
        self._rotaries = {
            is_windowed: RotaryEmbedding(
                build, DefaultRope(config.theta(is_windowed=is_windowed)), head_dim
            )
            for is_windowed in (False, True)
        }

    def forward(self, texts: Texts, attention: WholeAttention) -> Tensor:
        rotations = {
            kind: rotary.rotation(texts.positions) for kind, rotary in self._rotaries.items()
        }
        x: Tensor = self.embeddings(texts.ids)
        for layer in self.layers:
            assert isinstance(layer, _GatedBlock)
            x = layer(x, rotations[layer.is_windowed], attention)
        out: Tensor = self.end_norm(x)
        return out


class _NormedHead(nn.Module):
    def __init__(self, build: Build, config: Config) -> None:
        super().__init__()
        size = config.hidden_size
        self.dense = linear(build, size, [("head.dense", size)], bias=config.classifier_bias)
        self.head_norm = config.norm(build, "head.norm")
        self.out = linear(build, size, [("classifier", build.labels)], bias=True)
        self._activation = ACTIVATIONS[config.classifier_activation]

    def forward(self, pooled: Tensor) -> Tensor:
        out: Tensor = self.out(self.head_norm(self._activation(self.dense(pooled))))
        return out


def build(config: Config, build: Build) -> TextEncoder:
    return TextEncoder(
        _ModernBertBody(build, config),
        _NormedHead(build, config) if build.labels else None,
        base="model.",
        unused=("head.", "decoder."),
        heads=config.num_attention_heads,
    )
