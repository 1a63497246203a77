"""Adapters of experts whose matrices are one parameter, as PEFT's `target_parameters` makes them.

All experts' A stand one below the other, [experts * rank, inputs]. B is [outputs, rank * experts],
where an expert's columns are `experts` apart. The gate and the up projection are one parameter; if
the module has adapters of both of its parameters, that one is wrapped first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pando_worker.adapters.adapter import Pair
from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.file_modules import A, B, FileModule, FileModules
from pando_worker.adapters.layout import ExpertLayer, Section
from pando_worker.adapters.peft_config import PeftConfig

_PARAMETERS = "gate_up_proj", "down_proj"


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter with the sections that it becomes, of each expert."""

    name: str  # in the file's words
    sections: tuple[tuple[Section, ...], ...]


def take_fused(
    found: FileModules, config: PeftConfig, layer: ExpertLayer, sections: dict[str, Section]
) -> Iterator[tuple[Section, Pair]]:
    """The pairs of a layer's experts. Takes its modules out of `found`.

    Raises:
        AdapterError: its tensors are not those that `target_parameters` names.
    """
    outer, inner = (of.pop(layer.module, None) for of in (found.modules, found.wrapped))
    module = (outer or inner or FileModule(layer.module)).path
    if config.targets_parameter(f"{module}.gate_up_proj_bias") or config.targets_parameter(
        f"{module}.down_proj_bias"
    ):
        raise AdapterError(f"{found.path} has adapters of biases of {module}, which are not served")
    parameters = [
        _Parameter(f"{module}.{name}", tuple(tuple(sections[n] for n in names) for names in each))
        for name, each in zip(_PARAMETERS, (layer.gate_up, layer.down), strict=True)
        if config.targets_parameter(f"{module}.{name}")
    ]
    given = [of for of in (inner, outer) if of is not None]
    if len(given) != len(parameters) or (given and outer is None):
        raise AdapterError(
            f"{found.path} has adapters of {len(given)} parameters of {module}; its"
            f" target_parameters name {len(parameters)}"
        )
    for parameter, tensors in zip(parameters, given, strict=True):
        yield from _split(found.path, config, parameter, tensors)


def _split(
    path: Path, config: PeftConfig, parameter: _Parameter, module: FileModule
) -> Iterator[tuple[Section, Pair]]:
    if module.tensors.keys() != {A, B}:
        raise AdapterError(f"{path} must have {A} and {B} of {parameter.name}, and nothing else")
    a, b = module.tensors[A], module.tensors[B]
    rank, experts = config.rank(parameter.name), len(parameter.sections)
    first = parameter.sections[0]
    outputs = sum(section.outputs for section in first)
    for matrix, wanted, kind in (
        (a, (experts * rank, first[0].inputs), A),
        (b, (outputs, rank * experts), B),
    ):
        if matrix.shape != wanted:
            raise AdapterError(
                f"{path}: {module.path}{kind} for {parameter.name} is {list(matrix.shape)}; with"
                f" rank {rank} and this model it must be {list(wanted)}"
            )
    scale = config.scale(parameter.name, rank)
    for expert, sections in enumerate(parameter.sections):
        own_a = a[expert * rank : (expert + 1) * rank]
        own_b = b[:, expert::experts]
        start = 0
        for section in sections:
            part = own_b[start : start + section.outputs]
            start += section.outputs
            pair = Pair(own_a, part, scale)
            yield section, _without_zeros(pair) if len(sections) > 1 else pair


def _without_zeros(pair: Pair) -> Pair:
    """Without the ranks that B gives no weight: PEFT puts the two adapters of a gate and an up
    projection into one of twice the rank, of which half is zeros for each."""
    used = np.flatnonzero(pair.b.any(axis=0))
    if len(used) in (0, pair.rank):
        return pair
    return Pair(pair.a[used], pair.b[:, used], pair.scale)
