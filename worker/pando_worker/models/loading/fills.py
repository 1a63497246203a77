"""What of a checkpoint a model needs, and where it goes."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from torch import nn

from pando_worker.models.build import Fill
from pando_worker.models.layers.weight import Fp8Weight, GroupedWeight, PlainWeight, StackedWeight


@runtime_checkable
class _KnowsNames(Protocol):
    def fills(self) -> Iterator[Fill]: ...


_OF_A_LAYER = (PlainWeight, GroupedWeight, Fp8Weight, StackedWeight)  # which knows their name


def model_fills(model: nn.Module) -> Iterator[Fill]:
    """All that the checkpoint must have, and the memory that it fills."""
    for name, module in model.named_modules():
        if not isinstance(module, _OF_A_LAYER):
            yield from fills_of(name, module)


def fills_of(name: str, module: nn.Module) -> Iterator[Fill]:
    """Of one module, without those in it."""
    if isinstance(module, _KnowsNames):
        parent = name.rpartition(".")[0]
        prefix = f"{parent}." if parent else ""
        for fill in module.fills():
            yield fill._replace(name=prefix + fill.name)
    else:
        for kind, parameter in module.named_parameters(recurse=False):
            part = tuple(slice(0, size) for size in parameter.shape)
            yield Fill(f"{name}.{kind}", tuple(parameter.shape), part, parameter)
