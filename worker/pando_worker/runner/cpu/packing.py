"""Packs an encoder's matrices once, for oneDNN, a library behind torch. The library that torch's
`linear` uses for float32 packs them in each product."""

import logging
import platform

import torch
from torch import Tensor, nn

from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear
from pando_worker.models.layers.weight import PlainWeight

log = logging.getLogger("pando.worker.cpu")


class PackedWeight(nn.Module):
    """A `Weight` that is read in products alone; it takes the place of one that has been filled.

    Args:
        rows: that products usually have; others are as exact
    """

    def __init__(self, plain: PlainWeight, rows: int) -> None:
        super().__init__()
        self.outputs, self.inputs = plain.outputs, plain.inputs
        self._packed = torch.ops.mkldnn._reorder_linear_weight(plain.matrix.data, rows)

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, bias, "none", [], "")
        return y

    def part(self, rows: slice) -> Tensor:
        raise AssertionError("weights are packed after they are filled")


@torch.inference_mode()
def pack(encoder: nn.Module, rows: int) -> None:
    """Pack the float32 matrices of an encoder whose weights are loaded, where oneDNN is fast: on
    x86. Their plain memory is freed.

    Args:
        rows: positions that the encoder usually reads at once
    """
    has_library: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if platform.machine() not in ("x86_64", "AMD64") or not has_library:
        return
    packed = 0
    for layer in encoder.modules():
        if not isinstance(layer, ColumnParallelLinear | RowParallelLinear):
            continue
        weight = layer.weight
        if isinstance(weight, PlainWeight) and weight.matrix.dtype == torch.float32:
            layer.weight = PackedWeight(weight, rows)
            packed += 1
    log.info("%d matrices of the encoder are packed", packed)
