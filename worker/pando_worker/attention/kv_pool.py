"""`TokenToKVPool`: the keys and values of all cached tokens.

A slot holds one token; page p holds the slots [p * page_size, (p + 1) * page_size). The page
allocator assigns slots to owners; the pool does not know them.

Layers with a sliding window may have fewer slots, with their own numbers: their pages are released
behind the window (see `memory/window_pages.py`).
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, KVScales, LayerKV
from pando_worker.tensors.huge_pages import advise_huge_pages

KVStorer = Callable[[Tensor, Tensor, LayerKV, Tensor], None]
"""A device's own way to put new keys and values, [num_tokens, kv_heads, head_dim or v_head_dim],
into their slots, [num_tokens], of a layer."""


def kv_cell_bytes(layers: Iterable[AttentionLayer], dtype: torch.dtype) -> int:
    """Bytes of one token's keys and values, summed over all layers."""
    widths = (layer.kv_heads * (layer.head_dim + layer.v_head_dim) for layer in layers)
    return sum(widths) * dtype.itemsize


def windowed_layers(layers: Sequence[AttentionLayer], context_length: int) -> frozenset[int]:
    """Indices of the layers whose window is shorter than the longest sequence."""
    windows = ((layer.index, layer.window) for layer in layers)
    return frozenset(index for index, window in windows if window and window < context_length)


class TokenToKVPool:
    """One K and one V tensor per layer: a single tensor for all makes compiled steps far slower.

    Slots are not cleared: a row only reads slots that were written for its own tokens.

    Attributes:
        layers: the layers of these keys and values; layer i has `index` i
        windowed: indices of the layers with only `window_slots` slots; they use
            `ForwardBatch.window_table` and `window_slots`
        window_slots: number of their slots, without spare ones
        k: per layer, [num_slots, kv_heads, head_dim]
        v: per layer, [num_slots, kv_heads, v_head_dim]
        scales: per layer; others than 1 for a pool in fp8 only, set before anything is stored
        before_layer: lets the model's stream wait for what is copied to a layer; None if nothing is
            copied while a step runs
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
            spare_slots: extra slots of every layer
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
        self.scales = [KVScales()] * len(layers)
        self.before_layer: Callable[[int], None] | None = None

    @property
    def is_fp8(self) -> bool:
        return self.k[0].dtype == torch.float8_e4m3fn

    def of(self, layer: int) -> LayerKV:
        return LayerKV(self.k[layer], self.v[layer], self.scales[layer])

    @property
    def window(self) -> int:
        """The widest window of the windowed layers; 0 if there are none."""
        return max((self.layers[index].window or 0 for index in self.windowed), default=0)

    def parts(self, *, released: bool) -> dict[int, tuple[Tensor, Tensor]]:
        """Keys and values, [slots, kv_heads, width] each, of the windowed or of the other layers,
        by layer."""
        return {
            layer.index: (self.k[layer.index], self.v[layer.index])
            for layer in self.layers
            if (layer.index in self.windowed) == released
        }

    def slot_bytes(self, *, released: bool) -> int:
        """Bytes of a token in the windowed or in the other layers."""
        layers = self.parts(released=released).values()
        return sum(part.nbytes // part.shape[0] for parts in layers for part in parts)

    def clear(self) -> None:
        """Fill all slots with zeros."""
        for part in (*self.k, *self.v):
            part.view(torch.uint8).zero_()

    def release(self) -> None:
        """Free the memory, although tensors of it may be referenced. Nothing may use it again."""
        for part in (*self.k, *self.v):
            part.untyped_storage().resize_(0)

    def arrive(self, layer: int) -> None:
        """Attention calls this before it uses a layer."""
        if self.before_layer is not None:
            self.before_layer(layer)

    def store(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Write the keys and values of new tokens to `slots`, [num_tokens], in the pool's dtype."""
        store(self.of(layer), slots, k, v)

    def load(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Copy the keys and values of `slots`, [num_tokens], to `k` and `v`, in their dtypes."""
        of = self.of(layer)
        _read(of.k, slots, k, of.scales.k)
        _read(of.v, slots, v, of.scales.v)


def store(layer: LayerKV, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """Write keys and values, [num_tokens, kv_heads, head_dim or v_head_dim], to `slots`."""
    _write(layer.k, slots, k, layer.scales.k)
    _write(layer.v, slots, v, layer.scales.v)


def _write(pool: Tensor, slots: Tensor, values: Tensor, scale: float) -> None:
    if pool.dtype == torch.float8_e4m3fn:
        if scale != 1.0:
            values = values.float() * (1.0 / scale)
        # Not all versions of torch saturate values that are out of range.
        largest = torch.finfo(pool.dtype).max
        values = values.clamp(-largest, largest).to(pool.dtype).view(torch.uint8)
        pool = pool.view(torch.uint8)  # index operations do not support fp8
    pool.index_copy_(0, slots, values.to(pool.dtype))


def _read(pool: Tensor, slots: Tensor, out: Tensor, scale: float) -> None:
    if pool.dtype == out.dtype:
        torch.index_select(pool, 0, slots, out=out)
    elif pool.dtype == torch.float8_e4m3fn:
        out.copy_(pool.view(torch.uint8).index_select(0, slots).view(pool.dtype))
        if scale != 1.0:
            out.mul_(scale)
    else:
        out.copy_(pool.index_select(0, slots))
