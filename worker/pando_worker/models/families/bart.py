"""BART (`BartForConditionalGeneration`, arXiv:1910.13461), and mBART, which has norms before each
part and behind the last block (`MBartForConditionalGeneration`, arXiv:2001.08210)."""

from collections.abc import Iterator
from typing import Literal

import msgspec
from torch import nn

from pando_worker.models.build import Build, Fill
from pando_worker.models.layers.attention.source import AttentionForm
from pando_worker.models.layers.norms.layer_norm import LayerNorm
from pando_worker.models.layers.seq2seq import (
    Activation,
    BlocksDecoder,
    BlocksEncoder,
    DecoderBlock,
    EncoderBlock,
    EncoderDecoder,
    PositionTable,
)
from pando_worker.models.layers.vocabulary import VocabularyTable
from pando_worker.models.rope import Count

_NAMES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
_OFFSET = 2  # rows of the table of positions in front of the first one's
_BIAS = "final_logits_bias"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    architectures: tuple[str, ...]
    vocab_size: Count
    d_model: Count
    encoder_layers: Count
    encoder_attention_heads: Count
    encoder_ffn_dim: Count
    decoder_layers: Count
    decoder_attention_heads: Count
    decoder_ffn_dim: Count
    max_position_embeddings: Count
    activation_function: Activation = "gelu"
    scale_embedding: bool = False
    tie_word_embeddings: Literal[True] = True

    @property
    def pre(self) -> bool:
        """Whether norms are before each part."""
        return "MBartForConditionalGeneration" in self.architectures

    def form(self, heads: int) -> AttentionForm:
        head_dim = self.d_model // heads
        return AttentionForm(
            hidden_size=self.d_model,
            heads=heads,
            head_dim=head_dim,
            biased="qkvo",
            names=_NAMES,
            scale=head_dim**-0.5,
        )


class _HeadBias(nn.Module):
    """Added to the logits, [1, vocab_size]."""

    def __init__(self, build: Build, vocab_size: int) -> None:
        super().__init__()
        self.bias = build.parameter(1, vocab_size)

    def fills(self) -> Iterator[Fill]:
        shape = tuple(self.bias.shape)
        yield Fill(_BIAS, shape, (slice(0, 1), slice(0, shape[1])), self.bias)


def build(config: Config, build: Build) -> EncoderDecoder:
    size, positions = config.d_model, config.max_position_embeddings
    activation, scale = config.activation_function, 1.0
    if config.scale_embedding:
        scale = size**0.5
    shared = VocabularyTable(build, "shared", config.vocab_size, size)
    head = _HeadBias(build, config.vocab_size)
    encoder_form = config.form(config.encoder_attention_heads)
    decoder_form = config.form(config.decoder_attention_heads)
    encoder = BlocksEncoder(
        embed_tokens=shared,
        embed_positions=PositionTable(build, positions, size, _OFFSET),
        layers=[
            EncoderBlock(build, encoder_form, config.encoder_ffn_dim, activation, pre=config.pre)
            for _ in range(config.encoder_layers)
        ],
        layer_norm=LayerNorm(build, size) if config.pre else None,
        layernorm_embedding=LayerNorm(build, size),
        embedding_scale=scale,
    )
    decoder = BlocksDecoder(
        embed_tokens=shared,
        embed_positions=PositionTable(build, positions, size, _OFFSET),
        layers=[
            DecoderBlock(
                build, decoder_form, index, config.decoder_ffn_dim, activation, pre=config.pre
            )
            for index in range(config.decoder_layers)
        ],
        layer_norm=LayerNorm(build, size) if config.pre else None,
        layernorm_embedding=LayerNorm(build, size),
        embedding_scale=scale,
        head_bias=head.bias,
    )
    return EncoderDecoder(
        encoder,
        decoder,
        {"model.shared": shared, "head": head},
        redundant=[
            "lm_head.weight",
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
        ],
        optional=[_BIAS],
    )
