"""GPT-OSS's experts: a GGUF file has them as [experts, outputs, inputs], gate and up apart; the
family reads [experts, inputs, outputs], gate and up in turns."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.gguf.tensors import GgufTensor

_EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down)_exps\.(weight|bias)")


@dataclass(frozen=True, slots=True)
class StackedGguf:
    """[experts, inputs, outputs] from matrices [outputs, inputs] of one or two tensors.

    Attributes:
        sources: their outputs come in turns
    """

    sources: tuple[GgufTensor, ...]
    dtype: str = "F32"

    @property
    def path(self) -> Path:
        return self.sources[0].path

    @property
    def shape(self) -> tuple[int, ...]:
        experts, outputs, inputs = self.sources[0].shape
        return experts, inputs, outputs * len(self.sources)

    def read(self, part: tuple[slice, ...], device: torch.device) -> Tensor:
        experts, inputs, outputs = part or tuple(slice(0, size) for size in self.shape)
        own = _share(outputs, len(self.sources))
        stacks = []
        for number in range(experts.start, experts.stop):
            turns = [one.of_expert(number).read((own, inputs), device) for one in self.sources]
            stacks.append(torch.stack(turns, dim=1).flatten(0, 1).mT)
        return torch.stack(stacks)


@dataclass(frozen=True, slots=True)
class BiasInTurns:
    """[experts, outputs] of two tensors, whose outputs come in turns."""

    sources: tuple[GgufTensor, ...]
    dtype: str = "F32"

    @property
    def path(self) -> Path:
        return self.sources[0].path

    @property
    def shape(self) -> tuple[int, ...]:
        experts, outputs = self.sources[0].shape
        return experts, outputs * len(self.sources)

    def read(self, part: tuple[slice, ...], device: torch.device) -> Tensor:
        experts, outputs = part or tuple(slice(0, size) for size in self.shape)
        own = _share(outputs, len(self.sources))
        turns = [one.read((experts, own), device) for one in self.sources]
        return torch.stack(turns, dim=-1).flatten(1)


def by_input(tensors: Mapping[str, GgufTensor]) -> dict[str, Stored]:
    """All tensors, the experts' as the family names and reads them.

    Raises:
        BrokenCheckpoint: a part of the experts is missing or misshapen.
    """
    result: dict[str, Stored] = {}
    experts: dict[tuple[str, str], dict[str, GgufTensor]] = {}
    for name, tensor in tensors.items():
        if found := _EXPERTS.fullmatch(name):
            layer, matrix, kind = found.groups()
            experts.setdefault((layer, kind), {})[matrix] = tensor
        else:
            result[name] = tensor
    for (layer, kind), parts in experts.items():
        wanted = 3 if kind == "weight" else 2
        missing = {"gate", "up", "down"} - parts.keys()
        if missing or any(len(one.shape) != wanted for one in parts.values()):
            path = next(iter(parts.values())).path
            raise BrokenCheckpoint(f"{path} lacks experts of layer {layer}, or misshapes them")
        if parts["gate"].shape != parts["up"].shape:
            raise BrokenCheckpoint(f"{parts['up'].path}: gate and up of layer {layer} differ")
        both, down = (parts["gate"], parts["up"]), parts["down"]
        names = f"model.layers.{layer}.mlp.experts."
        if kind == "weight":
            result[f"{names}gate_up_proj"] = StackedGguf(both)
            result[f"{names}down_proj"] = StackedGguf((down,))
        else:
            result[f"{names}gate_up_proj_bias"] = BiasInTurns(both)
            result[f"{names}down_proj_bias"] = down
    return result


def _share(outputs: slice, sources: int) -> slice:
    """Of each source; parts begin and end between pairs."""
    assert not outputs.start % sources and not outputs.stop % sources
    return slice(outputs.start // sources, outputs.stop // sources)
