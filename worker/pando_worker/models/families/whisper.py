"""Whisper (`WhisperForConditionalGeneration`, arXiv:2212.04356): speech to text, in all its sizes.

Two convolutions make one position of two frames; half a minute of audio is 1,500 positions.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from pando_worker.models.build import Build
from pando_worker.models.layers.attention.source import AttentionForm
from pando_worker.models.layers.norms.layer_norm import LayerNorm
from pando_worker.models.layers.seq2seq import (
    BlocksDecoder,
    DecoderBlock,
    EncoderBlock,
    EncoderDecoder,
    PositionTable,
)
from pando_worker.models.layers.vocabulary import VocabularyTable
from pando_worker.models.rope import Count

_NAMES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}


class Config(msgspec.Struct, frozen=True, kw_only=True):
    vocab_size: Count
    num_mel_bins: Count
    d_model: Count
    encoder_layers: Count
    encoder_attention_heads: Count
    encoder_ffn_dim: Count
    decoder_layers: Count
    decoder_attention_heads: Count
    decoder_ffn_dim: Count
    max_source_positions: Count
    max_target_positions: Count
    activation_function: Literal["gelu"] = "gelu"
    scale_embedding: Literal[False] = False
    tie_word_embeddings: Literal[True] = True

    def form(self, heads: int) -> AttentionForm:
        head_dim = self.d_model // heads
        return AttentionForm(
            hidden_size=self.d_model,
            heads=heads,
            head_dim=head_dim,
            biased="qvo",
            names=_NAMES,
            scale=head_dim**-0.5,
        )


class _Convolution(nn.Module):
    """Over time, with a kernel of three frames and gelu behind it."""

    def __init__(self, build: Build, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.weight = build.parameter(outputs, inputs, 3)
        self.bias = build.parameter(outputs)
        self._stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """[batch, inputs, frames] to [batch, outputs, frames / stride]"""
        y = functional.conv1d(x, self.weight, self.bias, stride=self._stride, padding=1)
        return functional.gelu(y)


class _AudioEncoder(nn.Module):
    def __init__(self, config: Config, build: Build) -> None:
        super().__init__()
        size, inner = config.d_model, config.encoder_ffn_dim
        form = config.form(config.encoder_attention_heads)
        self.conv1 = _Convolution(build, config.num_mel_bins, size, 1)
        self.conv2 = _Convolution(build, size, size, 2)
        self.embed_positions = PositionTable(build, config.max_source_positions, size)
        self.layers = nn.ModuleList(
            EncoderBlock(build, form, inner, "gelu", pre=True) for _ in range(config.encoder_layers)
        )
        self.layer_norm = LayerNorm(build, size)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        x = self.conv2(self.conv1(torch.stack(list(inputs)))).transpose(1, 2)
        x = (x + self.embed_positions.weight).flatten(0, 1)
        lengths = [len(self.embed_positions.weight)] * len(inputs)
        for layer in self.layers:
            x = layer(x, lengths)
        normed: Tensor = self.layer_norm(x)
        return normed


def build(config: Config, build: Build) -> EncoderDecoder:
    size, inner = config.d_model, config.decoder_ffn_dim
    form = config.form(config.decoder_attention_heads)
    decoder = BlocksDecoder(
        embed_tokens=VocabularyTable(build, "embed_tokens", config.vocab_size, size),
        embed_positions=PositionTable(build, config.max_target_positions, size),
        layers=[
            DecoderBlock(build, form, index, inner, "gelu", pre=True)
            for index in range(config.decoder_layers)
        ],
        layer_norm=LayerNorm(build, size),
    )
    encoder = _AudioEncoder(config, build)
    return EncoderDecoder(encoder, decoder, {}, redundant=["proj_out.weight"])
