"""MPNet (arXiv:2004.09297): BERT's blocks with biases by distance beside positions."""

from typing import Literal

import msgspec
from torch import Tensor, nn

from pando_worker.attention.whole import WholeAttention
from pando_worker.models.build import Build
from pando_worker.models.kinds.text_encoder import PADDING
from pando_worker.models.layers.attention.distance_bias import RelativePositions
from pando_worker.models.layers.text_encoder import (
    Activation,
    Block,
    BlockForm,
    DenseHead,
    TextEncoder,
    Texts,
    TokenTables,
)
from pando_worker.models.rope import Count

_FARTHEST = 128  # distance from which on all share a bias


class Config(msgspec.Struct, frozen=True, kw_only=True):
    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    intermediate_size: Count
    hidden_act: Activation = "gelu"
    max_position_embeddings: Count = 512
    layer_norm_eps: float = 1e-12
    relative_attention_num_buckets: Literal[32] = 32  # transformers computes with no other

    @property
    def form(self) -> BlockForm:
        return BlockForm(
            hidden_size=self.hidden_size,
            heads=self.num_attention_heads,
            inner=self.intermediate_size,
            activation=self.hidden_act,
            eps=self.layer_norm_eps,
            qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
            attention_out="attention.attn.o",
            attention_norm="attention.LayerNorm",
        )


class _MPNetLayers(nn.Module):
    def __init__(self, build: Build, config: Config) -> None:
        super().__init__()
        blocks = [Block(build, config.form) for _ in range(config.num_hidden_layers)]
        self.layer = nn.ModuleList(blocks)
        self.distances = RelativePositions(
            build,
            config.num_attention_heads,
            buckets=config.relative_attention_num_buckets,
            farthest=_FARTHEST,
        )


class _MPNetBody(nn.Module):
    def __init__(self, build: Build, config: Config) -> None:
        super().__init__()
        self.embeddings = TokenTables(
            build,
            config.form,
            vocab_size=config.vocab_size,
            positions=config.max_position_embeddings,
            first_position=PADDING + 1,
        )
        self.encoder = _MPNetLayers(build, config)

    def forward(self, texts: Texts, attention: WholeAttention) -> Tensor:
        x: Tensor = self.embeddings(texts)
        biases = self.encoder.distances.between
        for block in self.encoder.layer:
            x = block(x, attention, biases)
        return x


def build(config: Config, build: Build) -> TextEncoder:
    head = None
    if build.labels:
        head = DenseHead(build, config.hidden_size, "classifier.dense", "classifier.out_proj")
    return TextEncoder(
        _MPNetBody(build, config),
        head,
        base="mpnet.",
        unused=("lm_head.", "pooler.", "embeddings.position_ids"),
        heads=config.num_attention_heads,
        has_biases=True,
    )
