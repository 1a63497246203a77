"""Copies arrays to the model's device and back without waiting for it.

On a GPU both directions use pinned memory, which torch recycles after the copy. On the CPU nothing
is copied.
"""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """`array` on `device`. On the CPU the tensor shares the array's memory, which must not change
    while the tensor is in use."""
    tensor = pinned(array, device)
    return tensor if device.type == "cpu" else tensor.to(device, non_blocking=True)


def pinned(array: NDArray[Any], device: torch.device) -> Tensor:
    """`array` in host memory from which it can be copied to `device` without waiting."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory()


class CopyMark:
    """When copies from a piece of pinned memory have ended, so that it may be written again."""

    def __init__(self, device: torch.device) -> None:
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def set(self) -> None:
        """Call behind the copies."""
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        """Until those before the last `set` have ended."""
        if self._event is not None:
            self._event.synchronize()


class HostCopy:
    """A tensor on its way to the host."""

    def __init__(self, tensor: Tensor) -> None:
        self._host = tensor
        self._arrived: torch.cuda.Event | None = None
        if tensor.is_cuda:
            self._host = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def wait(self) -> NDArray[Any]:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host.numpy()
