"""BERT (arXiv:1810.04805)."""

from typing import Literal

import msgspec
from torch import Tensor, nn

from pando_worker.attention.whole import WholeAttention
from pando_worker.models.build import Build
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

_QKV = ("attention.self.query", "attention.self.key", "attention.self.value")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    intermediate_size: Count
    hidden_act: Activation = "gelu"
    max_position_embeddings: Count = 512
    type_vocab_size: Count = 2
    layer_norm_eps: float = 1e-12
    position_embedding_type: Literal["absolute"] = "absolute"
    is_decoder: Literal[False] = False

    @property
    def form(self) -> BlockForm:
        return BlockForm(
            hidden_size=self.hidden_size,
            heads=self.num_attention_heads,
            inner=self.intermediate_size,
            activation=self.hidden_act,
            eps=self.layer_norm_eps,
            qkv=_QKV,
            attention_out="attention.output.dense",
            attention_norm="attention.output.LayerNorm",
        )


class Layers(nn.Module):
    """The blocks, under the checkpoint's name."""

    def __init__(self, build: Build, config: Config) -> None:
        super().__init__()
        blocks = [Block(build, config.form) for _ in range(config.num_hidden_layers)]
        self.layer = nn.ModuleList(blocks)


class BertBody(nn.Module):
    """
    Args:
        first_position: as of `TokenTables`
    """

    def __init__(self, build: Build, config: Config, first_position: int = 0) -> None:
        super().__init__()
        self.embeddings = TokenTables(
            build,
            config.form,
            vocab_size=config.vocab_size,
            positions=config.max_position_embeddings,
            first_position=first_position,
            kinds=config.type_vocab_size,
        )
        self.encoder = Layers(build, config)

    def forward(self, texts: Texts, attention: WholeAttention) -> Tensor:
        x: Tensor = self.embeddings(texts)
        for block in self.encoder.layer:
            x = block(x, attention)
        return x


def build(config: Config, build: Build) -> TextEncoder:
    head = None
    if build.labels:
        head = DenseHead(build, config.hidden_size, "pooler.dense", "classifier")
    return TextEncoder(
        BertBody(build, config),
        head,
        base="bert.",
        unused=("cls.", "pooler.", "embeddings.position_ids"),
        heads=config.num_attention_heads,
    )
