"""`Build`: what all layers of a model are made with, and what they say of their checkpoint.

Layers are made without memory first, so that a model's size is known before anything is loaded.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from pando_worker.models.grouped import Grouping, Integers
from pando_worker.models.ops import Ops, TorchOps
from pando_worker.models.parallel import ParallelGroup


@dataclass(frozen=True, slots=True)
class Build:
    dtype: torch.dtype
    device: torch.device  # where parameters will be
    group: ParallelGroup
    context_length: int  # longest sequence that will be served
    ops: Ops = field(default_factory=TorchOps)
    has_head: bool = True  # the model is to yield tokens, and not hidden states alone

    def parameter(self, *shape: int) -> nn.Parameter:
        """On "meta": without memory until weights are loaded."""
        empty = torch.empty(shape, dtype=self.dtype, device="meta")
        return nn.Parameter(empty, requires_grad=False)


class Packed(Protocol):
    """Memory that holds a tensor of the checkpoint as integers in groups."""

    @property
    def grouping(self) -> Grouping: ...

    def put(self, first: int, rows: Integers) -> None:
        """Some of its rows, from `first` on, a multiple of `grouped.LANES`; as many, unless they
        are its last."""
        ...


class Fill(NamedTuple):
    """A part of a checkpoint's tensor, and the (part of a) parameter that it fills.

    A layer whose parameters are not the checkpoint's tensors has a method `fills()` that yields
    one for each of them; its names are relative to the layer's parent.
    """

    name: str  # in the checkpoint
    shape: tuple[int, ...]  # of the checkpoint's whole tensor
    part: tuple[slice, ...]  # of it, what this rank takes; one slice a dimension
    memory: Tensor | Packed
