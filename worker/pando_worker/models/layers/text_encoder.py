"""`TextEncoder`: what models have in common whose tokens all see each other, around a family's
embeddings and blocks.

Modules have the checkpoint's names, without the prefix of models with a head.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from pando_worker.attention.whole import Biases, WholeAttention
from pando_worker.models.build import Build, Fill
from pando_worker.models.layers.linear import ColumnParallelLinear, Rows
from pando_worker.models.layers.norms.layer_norm import LayerNorm
from pando_worker.models.layers.vocabulary import VocabularyTable

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"]


def _gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": functional.relu,
    "silu": functional.silu,
}
"""By the names of `config.json`."""


@dataclass(frozen=True, slots=True)
class Texts:
    """A step's texts, one after the other.

    Attributes:
        ids, positions: int64 [num_tokens]
        kinds: int64 [num_tokens], 1 for tokens of the second text of a pair; None: all are 0
    """

    ids: Tensor
    positions: Tensor
    kinds: Tensor | None


class Body(Protocol):
    """A family's embeddings and blocks; a module."""

    def __call__(self, texts: Texts, attention: WholeAttention) -> Tensor:
        """Final hidden states, [num_tokens, hidden_size]."""
        ...


class ClassifierHead(Protocol):
    """Classifies texts; a module."""

    def __call__(self, pooled: Tensor) -> Tensor:
        """[n, hidden_size] to [n, labels]"""
        ...


class TextEncoder(nn.Module):
    """
    Attributes:
        base: the prefix of the body's tensors in checkpoints with a head
        unused: the beginnings of the names of tensors that checkpoints may have beside these,
            without `base`
        heads: of attention, in each layer
        has_biases: whether attention adds biases
    """

    def __init__(
        self,
        body: nn.Module,
        head: nn.Module | None,
        *,
        base: str,
        unused: Sequence[str],
        heads: int,
        has_biases: bool = False,
    ) -> None:
        """
        Args:
            body: a `Body`
            head: a `ClassifierHead`; None in a model that embeds
        """
        super().__init__()
        self.base, self.unused = base, tuple(unused)
        self.heads, self.has_biases = heads, has_biases
        self._parts = (cast(Body, body), cast("ClassifierHead | None", head))
        for module in (body, head):
            for name, part in module.named_children() if module else ():
                self.add_module(name, part)

    @torch.inference_mode()
    def forward(self, texts: Texts, attention: WholeAttention) -> Tensor:
        """Final hidden states, [num_tokens, hidden_size].

        Args:
            attention: planned for these texts
        """
        return self._parts[0](texts, attention)

    @property
    def classifies(self) -> bool:
        return self._parts[1] is not None

    @torch.inference_mode()
    def classify(self, pooled: Tensor) -> Tensor:
        """Pooled states, float32 [n, hidden_size], to logits, float32 [n, labels]."""
        head = self._parts[1]
        assert head is not None, "only a model that classifies has a head"
        dtype = next(self.parameters()).dtype
        return head(pooled.to(dtype)).float()


class NamedNorm(LayerNorm):
    """Layer normalisation with a name of its own in the checkpoint, and maybe without biases."""

    def __init__(
        self, build: Build, name: str, size: int, eps: float, *, biased: bool = True
    ) -> None:
        super().__init__(build, size, eps)
        self._name = name
        if not biased:
            self.bias = None

    def fills(self) -> Iterator[Fill]:
        (size,) = self.weight.shape
        yield Fill(f"{self._name}.weight", (size,), (slice(0, size),), self.weight)
        if self.bias is not None:
            yield Fill(f"{self._name}.bias", (size,), (slice(0, size),), self.bias)


def linear(
    build: Build, inputs: int, outputs: Sequence[tuple[str, int]], *, bias: bool
) -> ColumnParallelLinear:
    """Projections of the same input, side by side.

    Args:
        outputs: each one's name in the checkpoint, and its size
    """
    sections = {name: Rows(size, range(size)) for name, size in outputs}
    return ColumnParallelLinear(build, inputs, sections, bias=bias)


@dataclass(frozen=True, slots=True)
class BlockForm:
    """What the blocks of a model have in common, and the names of their parts.

    Attributes:
        inner: width of the feed-forward part
        qkv: names of queries, keys and values
        attention_out, attention_norm, inner_in, inner_out, inner_norm: names likewise
    """

    hidden_size: int
    heads: int
    inner: int
    activation: Activation
    eps: float  # of norms
    qkv: tuple[str, str, str]
    attention_out: str
    attention_norm: str
    inner_in: str = "intermediate.dense"
    inner_out: str = "output.dense"
    inner_norm: str = "output.LayerNorm"


class TokenTables(nn.Module):
    """The sum of tables, normalised: tokens, positions, and maybe which text of a pair.

    Args:
        positions: rows of their table
        first_position: the row of a text's first token
        kinds: rows of the table of texts of a pair; 0: there is none
    """

    def __init__(
        self,
        build: Build,
        form: BlockForm,
        *,
        vocab_size: int,
        positions: int,
        first_position: int = 0,
        kinds: int = 0,
    ) -> None:
        super().__init__()
        size = form.hidden_size
        self.words = VocabularyTable(build, "word_embeddings", vocab_size, size)
        self.positions = VocabularyTable(build, "position_embeddings", positions, size)
        self.kinds = VocabularyTable(build, "token_type_embeddings", kinds, size) if kinds else None
        self.norm = NamedNorm(build, "LayerNorm", size, form.eps)
        self._first_position = first_position
        self._has_pairs = kinds > 1

    def forward(self, texts: Texts) -> Tensor:
        x: Tensor = self.words(texts.ids) + self.positions(texts.positions + self._first_position)
        if self.kinds is not None:
            kinds = texts.kinds if self._has_pairs else None
            x = x + self.kinds(texts.ids.new_zeros(1) if kinds is None else kinds)
        out: Tensor = self.norm(x)
        return out


class Block(nn.Module):
    """BERT's block: attention, then feed-forward, each with a norm behind the residual sum."""

    def __init__(self, build: Build, form: BlockForm) -> None:
        super().__init__()
        size, inner = form.hidden_size, form.inner
        self.qkv = linear(build, size, [(name, size) for name in form.qkv], bias=True)
        self.attention_out = linear(build, size, [(form.attention_out, size)], bias=True)
        self.attention_norm = NamedNorm(build, form.attention_norm, size, form.eps)
        self.inner_in = linear(build, size, [(form.inner_in, inner)], bias=True)
        self.inner_out = linear(build, inner, [(form.inner_out, size)], bias=True)
        self.inner_norm = NamedNorm(build, form.inner_norm, size, form.eps)
        self._activation = ACTIVATIONS[form.activation]
        self._heads = form.heads
        self._scale = (size // form.heads) ** -0.5

    def forward(self, x: Tensor, attention: WholeAttention, biases: Biases | None = None) -> Tensor:
        q, k, v = (part.unflatten(-1, (self._heads, -1)) for part in self.qkv(x).chunk(3, dim=-1))
        attended = attention.attend(q, k, v, self._scale, biases=biases)
        x = self.attention_norm(self.attention_out(attended) + x)
        out: Tensor = self.inner_norm(self.inner_out(self._activation(self.inner_in(x))) + x)
        return out


class DenseHead(nn.Module):
    """A dense layer with tanh, then one number for each label.

    Args:
        dense, out: names of both layers in the checkpoint
    """

    def __init__(self, build: Build, hidden_size: int, dense: str, out: str) -> None:
        super().__init__()
        self.dense = linear(build, hidden_size, [(dense, hidden_size)], bias=True)
        self.out = linear(build, hidden_size, [(out, build.labels)], bias=True)

    def forward(self, pooled: Tensor) -> Tensor:
        out: Tensor = self.out(torch.tanh(self.dense(pooled)))
        return out
