"""Any weight as bytes, with a scale for each row (an output's "channel"): within 1/254 of the row's
largest number."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pando_worker.models.grouped import Grouping, Integers
from pando_worker.models.loading.checkpoint_tensor import Stored

_GROUPING = Grouping(bits=8, group=0, numbers=torch.float32, minimums=False)
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Int8:
    name: str = "int8"
    exact: bool = False

    def grouping(self, tensor: Stored, part: tuple[slice, ...]) -> Grouping:
        return _GROUPING

    def integers(self, tensor: Stored, part: tuple[slice, ...]) -> Integers:
        return quantize(tensor.read(part, _CPU).float())


def quantize(numbers: Tensor) -> Integers:
    """Of float32 [rows, columns]."""
    scales = numbers.abs().amax(dim=1, keepdim=True) / 127
    whole = (numbers / scales).nan_to_num_(0.0).round_()  # rows of zeros have no scale
    return Integers((whole + _GROUPING.zero).to(torch.uint8), scales, None)
