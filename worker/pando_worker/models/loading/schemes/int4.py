"""Any weight as 4-bit integers in groups of 32 with a scale and a minimum: GGUF's Q4_1, of which
both ends of each group are moved to where the squared error is least. The embedding and the head
are bytes: in 4 bits these alone cost more than all other weights."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pando_worker.models.grouped import RUN, Grouping, Integers
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.schemes import int8

GROUPING = Grouping(bits=4, group=32, numbers=torch.float16, minimums=True)
_LARGEST = 15
_SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8)  # of the range between a group's ends


@dataclass(frozen=True, slots=True)
class Int4:
    name: str = "int4"
    exact: bool = False

    def grouping(self, tensor: Stored, part: tuple[slice, ...], table: bool) -> Grouping:
        return int8.GROUPING if table else GROUPING

    def integers(self, tensor: Stored, part: tuple[slice, ...], grouping: Grouping) -> Integers:
        numbers = tensor.read(part, torch.device("cpu")).float()
        return int8.to_bytes(numbers) if grouping == int8.GROUPING else to_nibbles(numbers)


def to_nibbles(numbers: Tensor) -> Integers:
    """Of float32 [rows, columns]."""
    rows, columns = numbers.shape
    # Copies of the last number, which move no end.
    padded = functional.pad(numbers[None], (0, -columns % RUN), mode="replicate")[0]
    groups = padded.view(rows, -1, RUN)
    low, high = groups.amin(dim=-1, keepdim=True), groups.amax(dim=-1, keepdim=True)
    best = _rounded(groups, low, high)
    least = _error(groups, *best)
    for shrink in _SHRINKS[1:]:
        cut = (high - low) * (1 - shrink) / 2
        for ends in ((low + cut, high - cut), (low + 2 * cut, high), (low, high - 2 * cut)):
            tried = _rounded(groups, *ends)
            error = _error(groups, *tried)
            better = error < least
            least = torch.where(better, error, least)
            best = tuple(torch.where(better, a, b) for a, b in zip(tried, best, strict=True))
    values, scales, minimums = best
    values = values.to(torch.uint8).view(rows, -1)[:, :columns]
    return Integers(values, scales[..., 0], minimums[..., 0])


def _rounded(groups: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, ...]:
    """Integers, scales and minimums, these as they will be in memory."""
    scales = ((high - low) / _LARGEST).half().float()
    minimums = low.half().float()
    whole = ((groups - minimums) / scales).nan_to_num_(0.0).round_().clamp_(0, _LARGEST)
    return whole, scales, minimums


def _error(groups: Tensor, whole: Tensor, scales: Tensor, minimums: Tensor) -> Tensor:
    return (whole * scales + minimums - groups).square().sum(dim=-1, keepdim=True)
