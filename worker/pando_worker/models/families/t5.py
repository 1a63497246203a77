"""T5 (`T5ForConditionalGeneration`, arXiv:1910.10683), v1.0 and v1.1, and Flan-T5.

Instead of positions it has biases of the scores by distance, which all layers of a side share;
scores have no other scale.
"""

from collections.abc import Sequence
from typing import Literal, cast

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from pando_worker.attention.backend import SourceBackend
from pando_worker.models.build import Build
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.layers.attention.distance_bias import RelativePositions
from pando_worker.models.layers.attention.source import (
    AttentionForm,
    CrossAttention,
    EncoderAttention,
    SelfAttention,
)
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear, Rows
from pando_worker.models.layers.norms.rms import RMSNorm
from pando_worker.models.layers.seq2seq import EncoderDecoder
from pando_worker.models.layers.vocabulary import VocabularyTable
from pando_worker.models.ops import Ops
from pando_worker.models.rope import Count

_NAMES = {"q": "q", "k": "k", "v": "v", "o": "o"}


class Config(msgspec.Struct, frozen=True, kw_only=True):
    vocab_size: Count
    d_model: Count
    d_kv: Count
    d_ff: Count
    num_layers: Count
    num_heads: Count
    num_decoder_layers: Count | None = None
    feed_forward_proj: Literal["relu", "gated-gelu", "gated-silu"] = "relu"
    layer_norm_epsilon: float = 1e-6
    relative_attention_num_buckets: Count = 32
    relative_attention_max_distance: Count = 128
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    has_lm_head: bool  # implied: whether the checkpoint has a head of its own

    @property
    def head_scale(self) -> float:
        """Of hidden states before the head. As in transformers, `tie_word_embeddings` decides it
        in files of older versions, even where the checkpoint has a head of its own."""
        scales = self.scale_decoder_outputs
        if scales is None:
            scales = self.tie_word_embeddings
        return self.d_model**-0.5 if scales else 1.0

    @property
    def form(self) -> AttentionForm:
        return AttentionForm(
            hidden_size=self.d_model,
            heads=self.num_heads,
            head_dim=self.d_kv,
            biased="",
            names=_NAMES,
            scale=1.0,
        )

    def positions(self, build: Build) -> RelativePositions:
        buckets, farthest = (
            self.relative_attention_num_buckets,
            self.relative_attention_max_distance,
        )
        if buckets % 4 or farthest <= buckets // 2:
            raise BrokenCheckpoint(
                f"config.json has relative_attention_num_buckets {buckets}, which must be a"
                f" multiple of 4, and relative_attention_max_distance {farthest}, which must exceed"
                " half of it"
            )
        return RelativePositions(build, self.num_heads, buckets=buckets, farthest=farthest)

    def norm(self, build: Build) -> RMSNorm:
        return RMSNorm(build, self.d_model, self.layer_norm_epsilon)


class _FeedForward(nn.Module):
    def __init__(self, config: Config, build: Build) -> None:
        super().__init__()
        rows = Rows(config.d_ff, build.group.share(config.d_ff, "d_ff"))
        self._gate = config.feed_forward_proj.removeprefix("gated-")
        self._ops: Ops = build.ops
        names = ["wi"] if self._gate == "relu" else ["wi_0", "wi_1"]
        sections = dict.fromkeys(names, rows)
        self.wi = ColumnParallelLinear(build, config.d_model, sections, bias=False)
        self.wo = RowParallelLinear(build, "wo", rows, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.wi(x)
        if self._gate == "relu":
            inner = functional.relu(inner)
        else:
            inner = self._ops.gated(inner, gelu=self._gate == "gelu")
        out: Tensor = self.wo(inner)
        return out


class _T5Part(nn.Module):
    """A part of a block, behind its norm and in the checkpoint's name."""

    def __init__(self, config: Config, build: Build, name: str, part: nn.Module) -> None:
        super().__init__()
        self.layer_norm = config.norm(build)
        self.add_module(name, part)
        self._part = (part,)  # without a second name

    def forward(self, x: Tensor, *others: object) -> Tensor:
        out: Tensor = x + self._part[0](self.layer_norm(x), *others)
        return out


class _T5Block(nn.Module):
    def __init__(self, *parts: _T5Part) -> None:
        super().__init__()
        self.layer = nn.ModuleList(parts)


class _Encoder(nn.Module):
    def __init__(self, config: Config, build: Build, shared: VocabularyTable) -> None:
        super().__init__()
        self._shared = (shared,)
        self._positions = (config.positions(build),)
        self.block = nn.ModuleList()
        for index in range(config.num_layers):
            attention = EncoderAttention(build, config.form)
            if index == 0:
                attention.add_module("positions", self._positions[0])
            self.block.append(
                _T5Block(
                    _T5Part(config, build, "SelfAttention", attention),
                    _T5Part(config, build, "DenseReluDense", _FeedForward(config, build)),
                )
            )
        self.final_layer_norm = config.norm(build)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        lengths = [len(ids) for ids in inputs]
        x: Tensor = self._shared[0](torch.cat(list(inputs)))
        of_length = {length: self._positions[0].between(length) for length in set(lengths)}
        biases = [of_length[length] for length in lengths]
        for block in self.block:
            attention, feed_forward = cast(_T5Block, block).layer
            x = feed_forward(attention(x, lengths, biases))
        normed: Tensor = self.final_layer_norm(x)
        return normed


class _Decoder(nn.Module):
    def __init__(
        self, config: Config, build: Build, shared: VocabularyTable, head: VocabularyTable
    ) -> None:
        super().__init__()
        self._tables = (shared, head)
        self._head_scale = config.head_scale
        self._sources: list[CrossAttention] = []
        positions = config.positions(build)
        bias = positions.causal()
        self.block = nn.ModuleList()
        for index in range(config.num_decoder_layers or config.num_layers):
            own = SelfAttention(build, config.form, index, bias)
            if index == 0:
                own.add_module("positions", positions)
            source = CrossAttention(build, config.form, own.layer)
            self._sources.append(source)
            self.block.append(
                _T5Block(
                    _T5Part(config, build, "SelfAttention", own),
                    _T5Part(config, build, "EncDecAttention", source),
                    _T5Part(config, build, "DenseReluDense", _FeedForward(config, build)),
                )
            )
        self.final_layer_norm = config.norm(build)

    def forward(self, input_ids: Tensor, positions: Tensor, attention: SourceBackend) -> Tensor:
        x: Tensor = self._tables[0](input_ids)
        for block in self.block:
            own, source, feed_forward = cast(_T5Block, block).layer
            x = feed_forward(source(own(x, attention), attention))
        normed: Tensor = self.final_layer_norm(x)
        return normed

    def keep(self, encoded: Tensor, attention: SourceBackend) -> None:
        for source in self._sources:
            source.keep(encoded, attention)

    def head(self, hidden: Tensor) -> Tensor:
        return self._tables[1].logits(hidden * self._head_scale)


def build(config: Config, build: Build) -> EncoderDecoder:
    shared = head = VocabularyTable(build, "shared", config.vocab_size, config.d_model)
    others = {"shared": shared}
    if config.has_lm_head:
        head = VocabularyTable(build, "lm_head", config.vocab_size, config.d_model)
        others["lm_head"] = head
    first = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    return EncoderDecoder(
        _Encoder(config, build, shared),
        _Decoder(config, build, shared, head),
        others,
        inner="",
        redundant=["encoder.embed_tokens.weight", "decoder.embed_tokens.weight", first],
    )
