"""Which layers flashinfer's kernels can compute, with which of them, and in how much memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pando_worker.attention.backend import AttentionLayer

LEAST_WORKSPACE_BYTES = 256 * 2**20  # what flashinfer recommends
# Head dimensions that flashinfer's kernels support: of queries and keys, and of values.
HEAD_DIMS = {(64, 64), (128, 128), (256, 256), (192, 128)}


@dataclass(frozen=True, slots=True)
class AttentionKind:
    """The properties that kernels are compiled and planned for. Layers of one kind share plans."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    scale: float
    window: int | None
    soft_cap: float | None
    sinks: bool
    latent: bool = False

    @classmethod
    def of(cls, layer: AttentionLayer) -> "AttentionKind":
        return cls(
            heads=layer.heads,
            kv_heads=layer.kv_heads,
            head_dim=layer.head_dim,
            v_head_dim=layer.v_head_dim,
            scale=layer.scale,
            window=layer.window,
            soft_cap=layer.soft_cap,
            sinks=layer.sinks is not None,
            latent=layer.latent,
        )

    @property
    def q_dim(self) -> int:
        """As of `AttentionLayer`."""
        return self.head_dim + (self.v_head_dim if self.latent else 0)

    @property
    def can_share(self) -> bool:
        """Whether results over two parts of the keys can be merged. With sinks they cannot, as each
        part would count the sink; with a window it is not worth it, as most of a shared prefix is
        hidden. Calls for latents are not asked for what merging needs."""
        return not self.sinks and self.window is None and not self.latent

    def refusal(self) -> str | None:
        """Why flashinfer cannot compute these layers; None if it can."""
        if (self.head_dim, self.v_head_dim) not in HEAD_DIMS:
            return f"it has no kernels for heads of {self.head_dim} and {self.v_head_dim}"
        if self.sinks and self.soft_cap is not None:
            return "its kernels with attention sinks have no soft cap"
        return None


@dataclass(frozen=True, slots=True)
class Formats:
    dtype: torch.dtype  # of queries and results
    kv_dtype: torch.dtype
    page_size: int


def is_hopper(device: torch.device) -> bool:
    """The CPU counts as one, for tests."""
    return device.type == "cpu" or torch.cuda.get_device_capability(device)[0] == 9


def has_fa3(kind: AttentionKind, formats: Formats, device: torch.device) -> bool:
    """Whether FlashAttention 3 computes these layers: on Hopper, with one stride for a page of keys
    and of values. Its kernel for e4m3 leaves out soft caps and sinks without a word, and hung with
    windows (flashinfer's issue 3578)."""
    if not is_hopper(device) or kind.head_dim != kind.v_head_dim:
        return False
    if formats.kv_dtype == torch.float8_e4m3fn:
        return kind.window is None and kind.soft_cap is None and not kind.sinks
    return formats.kv_dtype == formats.dtype


def workspace_bytes(kinds: Sequence[AttentionKind], fixed_rows: int, multiprocessors: int) -> int:
    """The memory for partial results of rows whose keys are split over multiprocessors, enough for
    any plan: flashinfer 0.7.0's `PrefillPlan`, which later versions stay below.

    Args:
        fixed_rows: most rows of a call in fixed memory; others have any number
    """
    most = LEAST_WORKSPACE_BYTES
    for kind in kinds:
        if kind.latent:  # their kernels take 70 MB: two tiles of 64 queries a multiprocessor
            continue
        group = kind.heads // kind.kv_heads
        split = 2 * multiprocessors // kind.kv_heads  # tiles that keys may be split into
        tile = next(size for size in (16, 64, 128) if group <= size or size == 128)
        fixed = max(split, -(-fixed_rows * group // tile) + fixed_rows - 1) * tile
        # A result and the logarithm of its sum, both float32; the latter begins aligned.
        rows = max(fixed, split * 128)
        most = max(most, 4 * kind.heads * rows * (kind.v_head_dim + 1) + 64)
    return most
