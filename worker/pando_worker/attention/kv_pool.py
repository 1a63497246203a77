"""`TokenToKVPool`: the keys and values of all cached tokens.

A slot holds one token; page p holds the slots [p * page_size, (p + 1) * page_size). The pool does
not know who owns a slot: the page allocator hands them out.

Layers that see only a window may have fewer slots, with numbers of their own: their pages are
released behind the window (see `memory/window_pages.py`).
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer
from pando_worker.tensors.huge_pages import advise_huge_pages


def kv_cell_bytes(layers: Iterable[AttentionLayer], dtype: torch.dtype) -> int:
    """KV memory of one token: over all layers, KV heads x (key and value) x element size."""
    widths = (layer.kv_heads * (layer.head_dim + layer.v_head_dim) for layer in layers)
    return sum(widths) * dtype.itemsize


def windowed_layers(layers: Sequence[AttentionLayer], context_length: int) -> frozenset[int]:
    """The layers, by index, that do not see all of the longest sequence."""
    windows = ((layer.index, layer.window) for layer in layers)
    return frozenset(index for index, window in windows if window and window < context_length)


class TokenToKVPool:
    """One K and one V tensor a layer: one for all layers makes compiled steps far slower.

    Slots are not cleared: none is read before it was written by the row that reads it.

    Attributes:
        layers: whose keys and values these are; layer i has `index` i
        windowed: of these, by index, the ones that have `window_slots` slots, the others have all;
            `ForwardBatch.window_table` and `window_slots` are for them
        window_slots: without spare ones
        k: of each layer, [num_slots, kv_heads, head_dim]
        v: of each layer, [num_slots, kv_heads, v_head_dim]
    """

    def __init__(
        self,
        layers: Sequence[AttentionLayer],
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        windowed: frozenset[int] = frozenset(),
        window_slots: int = 0,
        spare_slots: int = 0,
    ) -> None:
        """
        Args:
            spare_slots: that every layer has beyond the others
        """

        def empty(layer: AttentionLayer, width: int) -> Tensor:
            slots = window_slots if layer.index in windowed else num_slots
            shape = (slots + spare_slots, layer.kv_heads, width)
            part = torch.empty(shape, dtype=dtype, device=device)
            advise_huge_pages(part)
            return part

        assert [layer.index for layer in layers] == list(range(len(layers)))
        assert bool(windowed) == (window_slots > 0)
        self.layers = layers
        self.windowed = windowed
        self.window_slots = window_slots
        self.k = [empty(layer, layer.head_dim) for layer in layers]
        self.v = [empty(layer, layer.v_head_dim) for layer in layers]

    @property
    def window(self) -> int:
        """The widest of the windowed layers' windows; 0 where there are none."""
        return max((self.layers[index].window or 0 for index in self.windowed), default=0)

    def parts(self, *, released: bool) -> list[Tensor]:
        """Keys and values of the windowed layers, or of the others, [slots, kv_heads, width]."""
        layers = [
            layer.index for layer in self.layers if (layer.index in self.windowed) == released
        ]
        return [side[index] for side in (self.k, self.v) for index in layers]

    def slot_bytes(self, *, released: bool) -> int:
        """What a token takes in the windowed layers, or in the others."""
        return sum(part.nbytes // part.shape[0] for part in self.parts(released=released))

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
