"""`TokenToKVPool`: the keys and values of all cached tokens, and how large it can be.

A slot holds one token; page p holds the slots [p * page_size, (p + 1) * page_size). The pool does
not know who owns a slot: the page allocator hands them out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer
from pando_worker.models.errors import DoesNotFit

MIB = 2**20


def kv_cell_bytes(layers: Sequence[AttentionLayer], dtype: torch.dtype) -> int:
    """KV memory of one token: over all layers, KV heads x (key and value) x element size."""
    widths = (layer.kv_heads * (layer.head_dim + layer.v_head_dim) for layer in layers)
    return sum(widths) * dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class KVBudget:
    """What decides the size of the pool."""

    memory_bytes: int  # for weights and KV cache together
    weight_bytes: int
    mem_fraction_static: float  # of what the weights leave, for the pool
    cell_bytes: int
    page_size: int
    max_total_tokens: int | None = None
    spare_pages: int = 0  # that the pool has beyond its capacity

    def capacity(self) -> int:
        """Tokens of the pool, a multiple of the page size.

        Raises:
            DoesNotFit: not even one page does.
        """
        left = self.memory_bytes - self.weight_bytes
        tokens = int(left * self.mem_fraction_static) // self.cell_bytes
        tokens -= self.spare_pages * self.page_size
        if self.max_total_tokens is not None:
            tokens = min(tokens, self.max_total_tokens)
        pages = tokens // self.page_size
        if pages < 1:
            raise DoesNotFit(f"no room for a KV page of {self.page_size} tokens: {self}")
        return pages * self.page_size

    def __str__(self) -> str:
        cap = "" if self.max_total_tokens is None else f", max_total_tokens {self.max_total_tokens}"
        return (
            f"weights {self.weight_bytes / MIB:.1f} MiB of {self.memory_bytes / MIB:.1f} MiB,"
            f" mem_fraction_static {self.mem_fraction_static} of the rest for the pool,"
            f" {self.cell_bytes} bytes a token{cap}"
        )


class TokenToKVPool:
    """One K and one V tensor a layer: one for all layers makes compiled steps far slower.

    Slots are not cleared: none is read before it was written by the row that reads it.

    Attributes:
        layers: whose keys and values these are; layer i has `index` i
        k: of each layer, [num_slots, kv_heads, head_dim]
        v: of each layer, [num_slots, kv_heads, v_head_dim]
    """

    def __init__(
        self,
        layers: Sequence[AttentionLayer],
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        def empty(heads: int, width: int) -> Tensor:
            return torch.empty((num_slots, heads, width), dtype=dtype, device=device)

        assert [layer.index for layer in layers] == list(range(len(layers)))
        self.layers = layers
        self.k = [empty(layer.kv_heads, layer.head_dim) for layer in layers]
        self.v = [empty(layer.kv_heads, layer.v_head_dim) for layer in layers]

    def store(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Put keys and values, as many as there are `slots`, [num_tokens], into these, in the
        pool's dtype."""
        _write(self.k[layer], slots, k)
        _write(self.v[layer], slots, v)

    def load(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Copy the keys and values of `slots`, [num_tokens], to `k` and `v`, in their dtype."""
        _read(self.k[layer], slots, k)
        _read(self.v[layer], slots, v)


def _write(pool: Tensor, slots: Tensor, values: Tensor) -> None:
    if pool.dtype == torch.float8_e4m3fn:
        # Not all versions of torch keep what is out of range at the largest number.
        largest = torch.finfo(pool.dtype).max
        values = values.clamp(-largest, largest).to(pool.dtype).view(torch.uint8)
        pool = pool.view(torch.uint8)  # index operations have no code for fp8
    pool.index_copy_(0, slots, values.to(pool.dtype))


def _read(pool: Tensor, slots: Tensor, out: Tensor) -> None:
    if pool.dtype == out.dtype:
        torch.index_select(pool, 0, slots, out=out)
    elif pool.dtype == torch.float8_e4m3fn:
        out.copy_(pool.view(torch.uint8).index_select(0, slots).view(pool.dtype))
    else:
        out.copy_(pool.index_select(0, slots))
