"""`FixedArrays`: arrays of fixed shapes, filled by the host and sent to the device together.

Each of them is a part of three pieces: of plain memory of the host, where it is filled; of pinned
memory, from which copies need not wait for the device; and of the device's. So a step sends all of
them with two copies, and makes no new tensors.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor


class FixedArray(NamedTuple):
    """
    Attributes:
        filled: to be filled before `FixedArrays.send`; zeros at first
        pinned: as it was sent last
        on_device: as it was sent last
    """

    filled: NDArray[Any]
    pinned: Tensor
    on_device: Tensor

    def at(self, index: int) -> "FixedArray":
        """A part of it."""
        return FixedArray(self.filled[index], self.pinned[index], self.on_device[index])


class FixedArrays:
    """
    Attributes:
        arrays: in the order of their shapes
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        device: torch.device,
        dtype: DTypeLike = np.int32,
    ) -> None:
        sizes = [prod(shape) for shape in shapes]
        filled = np.zeros(sum(sizes), dtype=dtype)
        self._filled = torch.from_numpy(filled)
        kind, is_cuda = self._filled.dtype, device.type == "cuda"
        self._pinned = torch.zeros(len(filled), dtype=kind, pin_memory=is_cuda)
        self._on_device = torch.zeros(len(filled), dtype=kind, device=device)
        parts = (
            shapes,
            np.split(filled, np.cumsum(sizes)[:-1]),
            self._pinned.split_with_sizes(sizes),
            self._on_device.split_with_sizes(sizes),
        )
        self.arrays = [
            FixedArray(filled.reshape(shape), pinned.view(shape), on_device.view(shape))
            for shape, filled, pinned, on_device in zip(*parts, strict=True)
        ]

    def send(self) -> None:
        """Those of the last time must have left pinned memory (`CopyMark`)."""
        self._pinned.copy_(self._filled)
        self._on_device.copy_(self._pinned, non_blocking=True)
