"""Top-p without sorting, by flashinfer's kernel."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor


class RadixNucleus:
    """A `Nucleus`: digit by digit from the highest, as AIR top-k does (Zhang et al., SC 2023).

    Its sums are of integers, so that a row's result does not depend on when its parts are added.

    Args:
        library: flashinfer's sampling module, or in tests what computes the same
    """

    def __init__(self, library: Any = None) -> None:
        self._keep = (library or import_module("flashinfer.sampling")).top_p_renorm_probs

    def __call__(self, weights: Tensor, shares: Tensor) -> Tensor:
        total = weights.sum(dim=-1, keepdim=True)
        kept = self._keep(weights / total, shares, is_deterministic=True)
        # The best token stays, whatever the kernel makes of a share next to nothing.
        return torch.where(kept > 0, weights, 1.0).amin(dim=-1)
