"""`Stored`: a tensor of a checkpoint, whatever format it is in, that is read a part at a time."""

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor


class Stored(Protocol):
    """A tensor that is not in memory yet."""

    @property
    def path(self) -> Path:
        """Its file, or one of them."""
        ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str:
        """As safetensors writes it."""
        ...

    def read(self, part: tuple[slice, ...], device: torch.device) -> Tensor:
        """A part: one slice with start and end for each dimension. `()` is all of it."""
        ...
