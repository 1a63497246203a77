"""`Staging`: the host's side of what plans copy to the device.

Arrays that are copied without waiting for the device must be in pinned memory, and stay unchanged
until they have left it. All plans of a step take turns in one piece of it, which the next step
takes again after an event.
"""

import torch
from torch import Tensor

from pando_worker.batch import Int32

LEAST = 4096  # numbers


class Staging:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copied: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._renew(LEAST)

    def wait(self) -> None:
        """Call before the first plan of a batch. The previous batch's copies only wait for the
        model of the batch before it, whose result the scheduler usually has already, so this rarely
        blocks."""
        if self._copied is not None:
            self._copied.synchronize()
            self._used = 0
        else:
            self._renew(LEAST)  # the plans keep these arrays

    def mark(self) -> None:
        """Call after the last plan of a batch."""
        if self._copied is not None:
            self._copied.record()

    def pinned(self, array: Int32) -> Tensor:
        """A copy of `array`, from which it can be copied to the device without waiting; valid until
        the next `wait`."""
        count = array.size
        if self._used + count > len(self._memory):
            # What was taken before stays in the old memory, which lives as long as it is used.
            self._renew(2 * (self._used + count))
        staged = self._memory[self._used : self._used + count]
        staged.copy_(torch.from_numpy(array))
        self._used += count
        return staged

    def on_device(self, array: Int32) -> Tensor:
        staged = self.pinned(array)
        if self._device.type == "cpu":
            return staged
        return staged.to(self._device, non_blocking=True)

    def _renew(self, count: int) -> None:
        is_cuda = self._device.type == "cuda"
        self._memory = torch.empty(count, dtype=torch.int32, pin_memory=is_cuda)
        self._used = 0
