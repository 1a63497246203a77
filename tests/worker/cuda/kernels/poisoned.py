"""Memory whose surroundings no kernel may use."""

import torch
from torch import Tensor

MARGIN = 4096  # elements on each side


class Poisoned:
    """A tensor amid elements that are NaN, or the most negative number, or for octets 255: NaN as
    e4m3, and as the scale of 4-bit floats infinite."""

    def __init__(self, values: Tensor) -> None:
        self._whole = values.new_empty(values.numel() + 2 * MARGIN)
        poison = torch.nan if values.is_floating_point() else torch.iinfo(values.dtype).min
        self._whole.fill_(255 if values.dtype == torch.uint8 else poison)
        self._before = self._whole.clone()
        self.tensor = self._whole[MARGIN:-MARGIN].view(values.shape)
        self.tensor.copy_(values)

    def check(self) -> None:
        """Nothing was written around the tensor."""
        for part in (slice(0, MARGIN), slice(-MARGIN, None)):
            same = self._whole[part].view(torch.uint8) == self._before[part].view(torch.uint8)
            assert same.all()
