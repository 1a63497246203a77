"""Which layers of a model take adapters, and where these are in a page of device memory."""

from collections.abc import Iterator
from itertools import chain, groupby

from torch import nn

from pando_worker.adapters.layout import Layout, Section, Span
from pando_worker.models.build import Fill
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear
from pando_worker.models.loading.fills import fills_of
from pando_worker.models.lora import LoraMemory, LoraSite

Linear = ColumnParallelLinear | RowParallelLinear


def layout_of(model: nn.Module) -> Layout:
    """The model may be without memory yet."""
    return Layout(tuple(chain.from_iterable(_sections(*layer) for layer in _layers(model))))


def attach(model: nn.Module, memory: LoraMemory) -> None:
    """Let the model's layers use `memory`, whose layout is the model's."""
    first = 0
    for name, layer in _layers(model):
        sections = _sections(name, layer)
        layer.lora = LoraSite(memory, first, sections)
        first += len(sections)


def _layers(model: nn.Module) -> Iterator[tuple[str, Linear]]:
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            yield name, module


def _sections(name: str, layer: Linear) -> list[Section]:
    """One for each tensor of the checkpoint, of which a layer may take several parts."""
    sections: list[Section] = []
    weights = (fill for fill in fills_of(name, layer) if len(fill.shape) == 2)
    for tensor, parts in groupby(weights, key=lambda fill: fill.name):
        fills = list(parts)
        outputs, inputs = fills[0].shape
        section = Section(
            tensor.removesuffix(".weight"),
            inputs=inputs,
            outputs=outputs,
            taken_inputs=_span(fills[0], 1),
            taken_outputs=tuple(_span(fill, 0) for fill in fills),
            first_output=sum(each.width for each in sections),
        )
        sections.append(section)
    return sections


def _span(fill: Fill, dimension: int) -> Span:
    part = fill.part[dimension]
    return int(part.start), int(part.stop)
