"""Top-p without sorting, with flashinfer's kernel."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor


class RadixNucleus:
    """A `Nucleus` found by radix selection, highest digit first (AIR top-k; Zhang et al., SC 2023).

    The kernel sums integers, so a row's result does not depend on the order of the additions.

    Args:
        library: flashinfer's sampling module; tests pass an equivalent
    """

    def __init__(self, library: Any = None) -> None:
        self._keep = (library or import_module("flashinfer.sampling")).top_p_renorm_probs

    def __call__(self, weights: Tensor, shares: Tensor) -> Tensor:
        total = weights.sum(dim=-1, keepdim=True)
        kept = self._keep(weights / total, shares, is_deterministic=True)
        # Always keep the best token: the kernel may drop it when the share is close to 0.
        return torch.where(kept > 0, weights, 1.0).amin(dim=-1)
