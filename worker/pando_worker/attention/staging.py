"""`Staging`: the host's side of what plans copy to the device.

Arrays that are copied without waiting for the device must be in pinned memory, and stay unchanged
until they have left it. All plans of a step take turns in one piece of it, which the next step
takes again after an event.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import Int32
from pando_worker.tensors.transfer import CopyMark

LEAST = 4096  # numbers


class Staging:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copied = CopyMark(device)
        self._renew(LEAST)

    def wait(self) -> None:
        """Call before the first plan of a batch. The previous batch's copies only wait for the
        model of the batch before it, whose result the scheduler usually has already, so this rarely
        blocks."""
        if self._device.type == "cuda":
            self._copied.wait()
            self._used = 0
        else:
            self._renew(LEAST)  # the plans keep these arrays

    def mark(self) -> None:
        """Call after the last plan of a batch."""
        self._copied.set()

    def pinned(self, *arrays: Int32) -> Sequence[Tensor]:
        """Copies of `arrays`, from which they can be copied to the device without waiting; valid
        until the next `wait`."""
        return self._staged(arrays).split_with_sizes([len(array) for array in arrays])

    def on_device(self, *arrays: Int32) -> Sequence[Tensor]:
        """Copies of `arrays` on the device, which one copy takes there."""
        staged = self._staged(arrays)
        if self._device.type != "cpu":
            staged = staged.to(self._device, non_blocking=True)
        return staged.split_with_sizes([len(array) for array in arrays])

    def _staged(self, arrays: Sequence[Int32]) -> Tensor:
        """One after the other, from an even place on."""
        together = np.concatenate(arrays)
        count = len(together)
        if self._used + count > self._room:
            # What was taken before stays in the old memory, which lives as long as it is used.
            self._renew(2 * (self._used + count))
        staged = self._memory.narrow(0, self._used, count)
        staged.copy_(torch.from_numpy(together))
        self._used += count + count % 2
        return staged

    def _renew(self, count: int) -> None:
        is_cuda = self._device.type == "cuda"
        self._memory = torch.empty(count, dtype=torch.int32, pin_memory=is_cuda)
        self._room, self._used = count, 0
