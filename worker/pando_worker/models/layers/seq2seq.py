"""`EncoderDecoder`: what encoder-decoders share, around the encoder and the blocks of a family.

`EncoderBlock` and `DecoderBlock` are those of the original transformer (arXiv:1706.03762), with
norms before or behind each part, as in BART and Whisper. Modules have the checkpoint's names.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from pando_worker.attention.backend import AttentionBackend, AttentionLayer, SourceBackend
from pando_worker.models.build import Build
from pando_worker.models.layers.attention.source import (
    AttentionForm,
    CrossAttention,
    EncoderAttention,
    SelfAttention,
)
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear, Rows
from pando_worker.models.layers.norms.layer_norm import LayerNorm
from pando_worker.models.layers.vocabulary import VocabularyTable

Activation = Literal["gelu", "relu"]


class SourceEncoder(Protocol):
    """Reads whole inputs; a module."""

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        """[positions of all, hidden_size], one input after the other.

        Args:
            inputs: features [mel bins, frames] in the model's dtype, or token ids, int64 [length]
        """
        ...


class SourceDecoder(Protocol):
    """A decoder that attends to sources; a module."""

    def __call__(self, input_ids: Tensor, positions: Tensor, attention: SourceBackend) -> Tensor:
        """Final hidden states, [num_tokens, hidden_size], of input_ids and positions
        [num_tokens]."""
        ...

    def keep(self, encoded: Tensor, attention: SourceBackend) -> None:
        """Write all layers' keys and values of sources, [num_positions, hidden_size]."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """[n, hidden_size] to float32 [n, vocab_size]"""
        ...


class EncoderDecoder(nn.Module):
    """
    Attributes:
        redundant: tensors that checkpoints may have although they follow from others
        optional: tensors that they may lack, which are zeros then
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        others: Mapping[str, nn.Module],
        *,
        inner: str = "model.",
        redundant: Sequence[str] = (),
        optional: Sequence[str] = (),
    ) -> None:
        """
        Args:
            encoder: a `SourceEncoder`
            decoder: a `SourceDecoder`
            others: modules beside them that both or one of them use, by their checkpoint's names
            inner: in front of the names of both
        """
        super().__init__()
        self._sides = (cast(SourceEncoder, encoder), cast(SourceDecoder, decoder))
        self.redundant, self.optional = frozenset(redundant), frozenset(optional)
        # The others first: a module that is used twice has the name that is found first.
        for name, module in {
            **others,
            f"{inner}encoder": encoder,
            f"{inner}decoder": decoder,
        }.items():
            owner, _, own = name.rpartition(".")
            if owner and not hasattr(self, owner):
                self.add_module(owner, nn.Module())
            self.get_submodule(owner).add_module(own, module)

    @property
    def encoder_side(self) -> nn.Module:
        """The `SourceEncoder`."""
        return cast(nn.Module, self._sides[0])

    @property
    def decoder_side(self) -> nn.Module:
        """The `SourceDecoder`, which checkpoints name differently."""
        return cast(nn.Module, self._sides[1])

    @property
    def attention_layers(self) -> list[AttentionLayer]:
        """This rank's, each for the tokens of requests and for their sources."""
        return [each.layer for each in self.modules() if isinstance(each, SelfAttention)]

    @torch.inference_mode()
    def encode(self, inputs: Sequence[Tensor], attention: AttentionBackend) -> None:
        """Write the keys and values of a step's sources; arguments as of `SourceEncoder`."""
        encoder, decoder = self._sides
        decoder.keep(encoder(inputs), _for_sources(attention))

    @torch.inference_mode()
    def forward(self, input_ids: Tensor, positions: Tensor, attention: AttentionBackend) -> Tensor:
        """Final hidden states, [num_tokens, hidden_size].

        Args:
            input_ids, positions: [num_tokens]
            attention: planned for this batch
        """
        return self._sides[1](input_ids, positions, _for_sources(attention))

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of final hidden states [n, hidden_size]: float32 [n, vocab_size], on other
        ranks than the first [n, 0]."""
        return self._sides[1].head(hidden)


def _for_sources(attention: AttentionBackend) -> SourceBackend:
    assert isinstance(attention, SourceBackend), "encoder-decoders run with no other backend"
    return attention


class PositionTable(nn.Module):
    """Learned positions, which are added to embeddings.

    Args:
        offset: rows of the table in front of the first position's
    """

    def __init__(self, build: Build, count: int, hidden_size: int, offset: int = 0) -> None:
        super().__init__()
        self.weight = build.parameter(count + offset, hidden_size)
        self._offset = offset
        self._ops = build.ops

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x, [n, hidden_size], plus the rows of its positions [n]"""
        rows = positions + self._offset if self._offset else positions
        return self._ops.add(x, self._ops.embedding(rows, self.weight))


class _Block(nn.Module):
    """A residual stream with norms before each part, or behind it."""

    def __init__(
        self, build: Build, form: AttentionForm, inner: int, activation: Activation, *, pre: bool
    ) -> None:
        super().__init__()
        size = form.hidden_size
        rows = Rows(inner, build.group.share(inner, "feed-forward units"))
        self.fc1 = ColumnParallelLinear(build, size, {"fc1": rows}, bias=True)
        self.fc2 = RowParallelLinear(build, "fc2", rows, size, bias=True)
        self.self_attn_layer_norm = LayerNorm(build, size)
        self.final_layer_norm = LayerNorm(build, size)
        self._activation = activation
        self._pre = pre
        self._ops = build.ops

    def _add(self, x: Tensor, norm: LayerNorm, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self._pre:
            return self._ops.add(x, part(norm(x)))
        normed: Tensor = norm(self._ops.add(x, part(x)))
        return normed

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.fc1(x)
        inner = self._ops.gelu(inner) if self._activation == "gelu" else functional.relu(inner)
        out: Tensor = self.fc2(inner)
        return out


class EncoderBlock(_Block):
    """Self-attention both ways, then feed-forward."""

    def __init__(
        self, build: Build, form: AttentionForm, inner: int, activation: Activation, *, pre: bool
    ) -> None:
        super().__init__(build, form, inner, activation, pre=pre)
        self.self_attn = EncoderAttention(build, form)

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        x = self._add(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, lengths))
        return self._add(x, self.final_layer_norm, self._feed_forward)


class DecoderBlock(_Block):
    """Causal self-attention, then attention to the source, then feed-forward."""

    def __init__(
        self,
        build: Build,
        form: AttentionForm,
        index: int,
        inner: int,
        activation: Activation,
        *,
        pre: bool,
    ) -> None:
        super().__init__(build, form, inner, activation, pre=pre)
        self.self_attn = SelfAttention(build, form, index)
        self.encoder_attn = CrossAttention(build, form, self.self_attn.layer)
        self.encoder_attn_layer_norm = LayerNorm(build, form.hidden_size)

    def forward(self, x: Tensor, attention: SourceBackend) -> Tensor:
        x = self._add(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, attention))
        x = self._add(x, self.encoder_attn_layer_norm, lambda y: self.encoder_attn(y, attention))
        return self._add(x, self.final_layer_norm, self._feed_forward)


class _Inputs(nn.Module):
    """Embeddings of tokens and their learned positions, in front of blocks.

    Args:
        embed_tokens: of tokens
        scale: factor on their embeddings
        embed_positions: added to them
        layernorm_embedding: on the sum
    """

    def __init__(
        self,
        embed_tokens: VocabularyTable,
        scale: float,
        embed_positions: PositionTable,
        layernorm_embedding: LayerNorm | None,
    ) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.embed_positions = embed_positions
        self.layernorm_embedding = layernorm_embedding
        self._scale = scale

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """[n, hidden_size] of both, [n]"""
        x: Tensor = self.embed_tokens(ids)
        if self._scale != 1.0:
            x = x * self._scale
        x = self.embed_positions(x, positions)
        return x if self.layernorm_embedding is None else self.layernorm_embedding(x)


class BlocksEncoder(_Inputs):
    """Reads token ids by `EncoderBlock`s.

    Args:
        layer_norm: behind the last block
    """

    def __init__(
        self,
        *,
        embed_tokens: VocabularyTable,
        embed_positions: PositionTable,
        layers: Sequence[EncoderBlock],
        layer_norm: LayerNorm | None,
        layernorm_embedding: LayerNorm | None,
        embedding_scale: float,
    ) -> None:
        super().__init__(embed_tokens, embedding_scale, embed_positions, layernorm_embedding)
        self.layers = nn.ModuleList(layers)
        self.layer_norm = layer_norm

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        lengths = [len(ids) for ids in inputs]
        positions = [torch.arange(length, device=inputs[0].device) for length in lengths]
        x = self.embed(torch.cat(list(inputs)), torch.cat(positions))
        for layer in self.layers:
            x = layer(x, lengths)
        return x if self.layer_norm is None else self.layer_norm(x)


class BlocksDecoder(_Inputs):
    """A decoder of `DecoderBlock`s; its embedding is also its head.

    Args:
        layer_norm: behind the last block
        head_bias: [1, vocab_size], added to the logits
    """

    def __init__(
        self,
        *,
        embed_tokens: VocabularyTable,
        embed_positions: PositionTable,
        layers: Sequence[DecoderBlock],
        layer_norm: LayerNorm | None,
        layernorm_embedding: LayerNorm | None = None,
        embedding_scale: float = 1.0,
        head_bias: nn.Parameter | None = None,
    ) -> None:
        super().__init__(embed_tokens, embedding_scale, embed_positions, layernorm_embedding)
        self.layers = nn.ModuleList(layers)
        self._blocks = list(layers)
        self.layer_norm = layer_norm
        self._head_bias = (head_bias,)  # of a module of its own

    def forward(self, input_ids: Tensor, positions: Tensor, attention: SourceBackend) -> Tensor:
        x = self.embed(input_ids, positions)
        for layer in self.layers:
            x = layer(x, attention)
        return x if self.layer_norm is None else self.layer_norm(x)

    def keep(self, encoded: Tensor, attention: SourceBackend) -> None:
        for block in self._blocks:
            block.encoder_attn.keep(encoded, attention)

    def head(self, hidden: Tensor) -> Tensor:
        logits = self.embed_tokens.logits(hidden)
        (bias,) = self._head_bias
        return logits if bias is None else logits + bias[:, : logits.shape[1]]
