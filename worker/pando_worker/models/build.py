"""`Build`: the context in which a model's layers are created, and how they map to the checkpoint.

Layers are first created without memory, so that a model's size is known before anything is loaded.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from pando_worker.models.fp8 import Fp8Matrix
from pando_worker.models.grouped import Grouping, Integers
from pando_worker.models.mxfp4 import Mxfp4Matrix
from pando_worker.models.ops import Ops, TorchOps
from pando_worker.models.parallel import ParallelGroup


@dataclass(frozen=True, slots=True)
class Build:
    dtype: torch.dtype
    device: torch.device  # of the parameters, after loading
    group: ParallelGroup
    context_length: int  # of the longest sequence that is served
    ops: Ops = field(default_factory=TorchOps)
    has_head: bool = True  # False: the model yields hidden states only
    labels: int = 0  # of a model that classifies texts
    # Whether layers give what this rank adds to the residual stream, and the norm behind them sums
    # it over the ranks: where every such sum is followed by a norm.
    sums_in_norms: bool = False
    expert_parallel: bool = False  # each rank has whole experts, instead of a share of each

    def parameter(self, *shape: int) -> nn.Parameter:
        """A parameter on "meta", without memory until weights are loaded."""
        empty = torch.empty(shape, dtype=self.dtype, device="meta")
        return nn.Parameter(empty, requires_grad=False)


class Packed(Protocol):
    """Memory that holds a tensor of the checkpoint as grouped integers."""

    @property
    def grouping(self) -> Grouping: ...

    def put(self, first: int, rows: Integers) -> None:
        """Write some rows. `first` is a multiple of `grouped.LANES`, and so is their number, unless
        they are the last rows."""
        ...


class Fill(NamedTuple):
    """A part of a checkpoint's tensor, and the parameter (or part of one) that it fills.

    A layer whose parameters differ from the checkpoint's tensors has a method `fills()` that yields
    one `Fill` for each tensor; names are relative to the layer's parent.
    """

    name: str  # in the checkpoint
    shape: tuple[int, ...]  # of the checkpoint's whole tensor
    part: tuple[slice, ...]  # this rank's part, one slice per dimension
    memory: Tensor | Packed | Fp8Matrix | Mxfp4Matrix
