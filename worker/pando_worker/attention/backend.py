"""The attention interface for models: one plan per batch, then one call per layer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from pando_worker.batch import ForwardBatch, Int32, Int64


@dataclass(frozen=True, slots=True, eq=False)
class DistanceBias:
    """Added to the score of a query and a key that is d tokens before it: for head h,
    `biases[buckets[min(d, len(buckets) - 1)], h]`.

    Attributes:
        biases: [number of buckets, heads], of the model's dtype
        buckets: int32 [distances]
    """

    biases: Tensor
    buckets: Tensor

    def at(self, distances: Tensor) -> Tensor:
        """[heads, *shape of distances]; distances below 0 count as 0."""
        buckets = self.buckets[distances.clamp(0, len(self.buckets) - 1)]
        return self.biases[buckets.long()].movedim(-1, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionLayer:
    """The constants of one layer's attention, as this rank computes it."""

    index: int  # of its tensors in the KV pool
    heads: int  # a multiple of `kv_heads`
    kv_heads: int
    head_dim: int  # of queries and keys; of latents the part that is no value
    v_head_dim: int  # of values
    # Whether a key is its value, which is the latent of all heads, and behind that a part of its
    # own (DeepSeek-V2, arXiv:2405.04434). The pool has both once, for one KV head on every rank.
    latent: bool = False
    scale: float  # of the scores, usually head_dim ** -0.5
    window: int | None = None  # keys that a query sees, including its own; None: all earlier ones
    soft_cap: float | None = None  # scores become cap * tanh(score / cap), before the mask
    sinks: Tensor | None = (
        None  # [heads], an extra score per head in the softmax that has no value vector
    )
    bias: DistanceBias | None = None  # of scores of a row's own tokens, not of its source's

    @property
    def q_dim(self) -> int:
        """Of a query, which is as wide as a whole key."""
        return self.head_dim + (self.v_head_dim if self.latent else 0)


class KVScales(NamedTuple):
    """Of one layer: a number of the pool times its scale is the key or the value."""

    k: float = 1.0
    v: float = 1.0


class LayerKV(NamedTuple):
    """The keys and values of one layer in the KV pool.

    Attributes:
        k, v: [slots, kv_heads, head_dim or v_head_dim]
    """

    k: Tensor
    v: Tensor
    scales: KVScales = KVScales()


def page_numbers(batch: ForwardBatch, released: bool) -> tuple[Int32, Int64]:
    """A batch's page table, [batch, max_pages], and the slots of its new tokens, [num_tokens].

    Args:
        released: for the layers that release pages behind their window: `TokenToKVPool.windowed`
    """
    if not released:
        return batch.page_table, batch.out_slots
    assert batch.window_table is not None, "the batch was made for a pool that all layers share"
    assert batch.window_slots is not None
    return batch.window_table, batch.window_slots


class AttentionBackend(Protocol):
    """Attention of a batch's new tokens over all tokens of their rows in the KV pool: causal, but
    for what `ForwardBatch.seen` says of images."""

    def plan(self, batch: ForwardBatch) -> None:
        """Prepare the data that all layers share: indices, masks, scratch memory."""
        ...

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        """Store the new keys and values in the pool, then compute attention.

        Args:
            q: [num_tokens, heads, q_dim]
            k: [num_tokens, kv_heads, head_dim]
            v: [num_tokens, kv_heads, v_head_dim]

        Returns:
            [num_tokens, heads, v_head_dim]
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class HeadTurn:
    """What is done to a step's queries and keys before attention: norms of each head, then the
    rotation of its leading dimensions.

    Attributes:
        table: float32 [num_tokens, rotary dimensions], cosines in front of sines
        q_norm, k_norm: [head_dim] of the model's dtype; None: no norms
        offset: whether norms multiply with 1 + weight
    """

    table: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None
    eps: float
    offset: bool


HeadTurner = Callable[[Tensor, HeadTurn, AttentionLayer, LayerKV, Tensor], Tensor]
"""A device's own way to turn queries and keys, and to store keys and values in their slots,
[num_tokens], of a layer. The first argument has all heads, as a projection makes them,
[num_tokens, heads + 2 * kv_heads, head_dim]. Returns the queries."""


@runtime_checkable
class TurningBackend(AttentionBackend, Protocol):
    """One that may turn heads itself.

    Attributes:
        turns: whether it does
    """

    turns: bool

    def forward_turned(self, qkv: Tensor, turn: HeadTurn, layer: AttentionLayer) -> Tensor:
        """As `forward`, of [num_tokens, heads + 2 * kv_heads, head_dim]."""
        ...


@runtime_checkable
class SourceBackend(AttentionBackend, Protocol):
    """One for encoder-decoders, too: `ForwardBatch.sources`."""

    def keep_sources(self, k: Tensor, v: Tensor, layer: AttentionLayer) -> None:
        """Store the keys and values of the sources that the step encodes.

        Args:
            k, v: [num_positions, kv_heads, head_dim or v_head_dim]
        """
        ...

    def attend_sources(self, q: Tensor, layer: AttentionLayer) -> Tensor:
        """Attention of each new token to all positions of its row's source.

        Args:
            q: [num_tokens, heads, head_dim]

        Returns:
            [num_tokens, heads, v_head_dim]
        """
        ...
