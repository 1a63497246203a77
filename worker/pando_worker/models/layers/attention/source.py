"""The attention layers of encoder-decoders: within the encoder, within the decoder, and from the
decoder to what the encoder made of a request's source.

Keys and values of a source lie in the pages of the decoder's layer, like those of its own tokens:
both have as many heads of the same width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from pando_worker.attention.backend import (
    AttentionBackend,
    AttentionLayer,
    DistanceBias,
    SourceBackend,
)
from pando_worker.models.build import Build
from pando_worker.models.layers.attention.multi_head import head_rows
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """What the attention layers of a model have in common.

    Attributes:
        hidden_size: of the residual stream
        biased: which of "q", "k", "v" and "o" have a bias
        names: of these four projections in the checkpoint
        scale: of the scores
    """

    hidden_size: int
    heads: int
    head_dim: int
    biased: str
    names: Mapping[str, str]
    scale: float


class _Projections:
    """Projections of one input to this rank's heads. Those with biases are one matrix product, and
    those without are another."""

    def __init__(self, owner: nn.Module, build: Build, form: AttentionForm, letters: str) -> None:
        """
        Args:
            owner: the attention layer, which gets the linear layers
        """
        rows, _ = head_rows(build, form.heads, form.heads, form.head_dim)
        self._head_dim = form.head_dim
        self._letters = letters
        self._products: list[tuple[ColumnParallelLinear, list[str]]] = []
        for bias in (True, False):
            some = [each for each in letters if (each in form.biased) == bias]
            if some:
                sections = {form.names[each]: rows for each in some}
                layer = ColumnParallelLinear(build, form.hidden_size, sections, bias=bias)
                owner.add_module(f"{''.join(some)}_projection", layer)
                self._products.append((layer, some))

    def __call__(self, x: Tensor) -> list[Tensor]:
        """[num_tokens, hidden_size] to one [num_tokens, heads, head_dim] for each letter."""
        found: dict[str, Tensor] = {}
        for layer, letters in self._products:
            y = layer(x).unflatten(-1, (-1, self._head_dim))
            found |= zip(letters, y.tensor_split(len(letters), dim=1), strict=True)
        return [found[letter] for letter in self._letters]


def _out(build: Build, form: AttentionForm) -> RowParallelLinear:
    rows, _ = head_rows(build, form.heads, form.heads, form.head_dim)
    bias = "o" in form.biased
    return RowParallelLinear(build, form.names["o"], rows, form.hidden_size, bias=bias)


class EncoderAttention(nn.Module):
    """All positions of an input see each other."""

    def __init__(self, build: Build, form: AttentionForm) -> None:
        super().__init__()
        self._qkv = _Projections(self, build, form, "qkv")
        self.out = _out(build, form)
        self._scale = form.scale

    def forward(
        self, x: Tensor, lengths: Sequence[int], biases: Sequence[Tensor] | None = None
    ) -> Tensor:
        """
        Args:
            x: [sum of lengths, hidden_size], one input after the other
            biases: of each input, added to its scores, [heads, length, length]; None: nothing is
        """
        parts = []
        inputs = zip(*(torch.split(part, list(lengths)) for part in self._qkv(x)), strict=True)
        for index, heads in enumerate(inputs):
            q, k, v = (part.transpose(0, 1)[None] for part in heads)
            bias = None if biases is None else biases[index][None]
            one = scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=self._scale)
            parts.append(one[0].transpose(0, 1).flatten(1))
        out: Tensor = self.out(torch.cat(parts) if len(parts) > 1 else parts[0])
        return out


class SelfAttention(nn.Module):
    """Causal, over a paged KV pool, without rotary positions."""

    def __init__(
        self, build: Build, form: AttentionForm, index: int, bias: DistanceBias | None = None
    ) -> None:
        super().__init__()
        self._qkv = _Projections(self, build, form, "qkv")
        self.out = _out(build, form)
        heads = len(build.group.share(form.heads, "attention heads"))
        self.layer = AttentionLayer(
            index=index,
            heads=heads,
            kv_heads=heads,
            head_dim=form.head_dim,
            v_head_dim=form.head_dim,
            scale=form.scale,
            bias=bias,
        )

    def forward(self, x: Tensor, attention: AttentionBackend) -> Tensor:
        q, k, v = self._qkv(x)
        out: Tensor = self.out(attention.forward(q, k, v, self.layer).flatten(1))
        return out


class CrossAttention(nn.Module):
    """Each token sees all positions of its request's source.

    Args:
        layer: of the same decoder layer's self-attention

    Attributes:
        watched: gets the queries of the step that runs; None in nearly every step
    """

    def __init__(self, build: Build, form: AttentionForm, layer: AttentionLayer) -> None:
        super().__init__()
        self._q = _Projections(self, build, form, "q")
        self._kv = _Projections(self, build, form, "kv")
        self.out = _out(build, form)
        self.layer = layer
        self.watched: list[Tensor] | None = None

    def keep(self, encoded: Tensor, attention: SourceBackend) -> None:
        """Write the keys and values of the sources that a step encodes.

        Args:
            encoded: [num_positions, hidden_size]
        """
        k, v = self._kv(encoded)
        attention.keep_sources(k, v, self.layer)

    def forward(self, x: Tensor, attention: SourceBackend) -> Tensor:
        (q,) = self._q(x)
        if self.watched is not None:
            self.watched.append(q)
        out: Tensor = self.out(attention.attend_sources(q, self.layer).flatten(1))
        return out
