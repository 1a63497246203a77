"""Exchanges a model's weights for integers in groups, as a scheme has them.

That happens before the model has memory, so its size is known before anything is read.
"""

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from pando_worker.models.build import Build
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.grouped import LANES, Grouping
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear
from pando_worker.models.layers.vocabulary import VocabularyTable
from pando_worker.models.layers.weight import GroupedWeight, PlainWeight, StackedWeight, Weight
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.fills import fills_of
from pando_worker.models.loading.schemes.scheme import Scheme


class _Section(NamedTuple):
    """Outputs of a layer that are kept alike."""

    grouping: Grouping | None
    outputs: int


def quantize_weights(
    model: CausalLM, tensors: Mapping[str, Stored], scheme: Scheme, build: Build
) -> None:
    """
    Args:
        tensors: of the checkpoint; weights that it lacks stay as they are

    Raises:
        UnsupportedModel: a rank's part cuts through groups; a model with experts, for which there
            are no products on integers, where the scheme changes the weights.
    """
    if not scheme.exact and any(isinstance(part, MixtureOfExperts) for part in model.modules()):
        raise UnsupportedModel(
            f"quantization {scheme.name} is not for models with experts; use auto or none"
        )
    for name, module in model.named_modules():
        if isinstance(module, (ColumnParallelLinear, RowParallelLinear, VocabularyTable)):
            sections = _sections(name, module, tensors, scheme)
            if any(section.grouping for section in sections):
                module.weight = _weight(sections, module.weight, build)


def is_quantized(model: nn.Module) -> bool:
    """Whether any weights are integers."""
    return any(isinstance(module, GroupedWeight) for module in model.modules())


def _sections(
    name: str,
    module: ColumnParallelLinear | RowParallelLinear | VocabularyTable,
    tensors: Mapping[str, Stored],
    scheme: Scheme,
) -> list[_Section]:
    """Neighbours that are alike are one, where the second begins with a tile."""
    sections: list[_Section] = []
    table = isinstance(module, VocabularyTable)
    for fill in fills_of(name, module):
        if len(fill.part) != 2:
            continue  # a bias
        tensor = tensors.get(fill.name)
        grouping = None
        if (
            tensor is not None and tensor.shape == fill.shape
        ):  # otherwise loading says what is wrong
            grouping = scheme.grouping(tensor, fill.part, table)
        one = _Section(grouping, fill.part[0].stop - fill.part[0].start)
        last = sections[-1] if sections else None
        if last and last.grouping == grouping and last.outputs % LANES == 0:
            sections[-1] = _Section(grouping, last.outputs + one.outputs)
        else:
            sections.append(one)
    if table:  # the last rank's may be larger than its tokens
        [(grouping, _)] = sections
        return [_Section(grouping, module.weight.outputs)]
    return sections


def _weight(sections: list[_Section], plain: Weight, build: Build) -> Weight:
    parts = [
        PlainWeight(build, outputs, plain.inputs)
        if grouping is None
        else GroupedWeight(build.ops, grouping, outputs, plain.inputs)
        for grouping, outputs in sections
    ]
    return parts[0] if len(parts) == 1 else StackedWeight(parts)
