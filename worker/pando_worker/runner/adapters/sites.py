"""Which layers of a model take adapters, and where these are in a page of device memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby

from pando_worker.adapters.layout import ExpertLayer, Layout, Section, Span
from pando_worker.models.build import Fill
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import ExpertSites, MixtureOfExperts
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear
from pando_worker.models.layers.lora_vocabulary import TableSite
from pando_worker.models.layers.vocabulary import VocabularyTable
from pando_worker.models.loading.fills import fills_of
from pando_worker.models.lora.linear import LoraMemory, LoraSite

Linear = ColumnParallelLinear | RowParallelLinear


@dataclass(frozen=True, slots=True)
class _LayerSections:
    """A module that takes adapters.

    Attributes:
        attach: let it use this memory, in which its first section has this index
    """

    sections: tuple[Section, ...]
    attach: Callable[[LoraMemory, int], None]
    experts: ExpertLayer | None = None
    renamed: tuple[str, str] = ("", "")


def layout_of(model: CausalLM) -> Layout:
    """The model may be without memory yet."""
    places = list(_places(model))
    return Layout(
        tuple(chain.from_iterable(place.sections for place in places)),
        tuple(place.experts for place in places if place.experts is not None),
        dict(place.renamed for place in places if place.experts is not None),
        tied=model.head is model.model.embed_tokens,
    )


def attach(model: CausalLM, memory: LoraMemory) -> None:
    """Let the model's layers use `memory`, whose layout is the model's."""
    first = 0
    for place in _places(model):
        place.attach(memory, first)
        first += len(place.sections)


def _places(model: CausalLM) -> Iterator[_LayerSections]:
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            yield _linear(name, module)
        elif isinstance(module, MixtureOfExperts):
            yield _experts(name, module)
    embedding = _table_sections("model.embed_tokens", model.model.embed_tokens)
    yield _LayerSections(embedding, partial(_attach_embedding, model.model.embed_tokens, embedding))
    if (head := model.head) is not None:
        sections = _table_sections("lm_head", head)
        yield _LayerSections(sections, partial(_attach_head, head, sections))


def _linear(name: str, layer: Linear) -> _LayerSections:
    sections = tuple(_sections(name, layer))

    def attach(memory: LoraMemory, first: int) -> None:
        layer.lora = LoraSite(memory, first, sections)

    return _LayerSections(sections, attach)


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


def _experts(name: str, layer: MixtureOfExperts) -> _LayerSections:
    parent = f"{name.rpartition('.')[0]}."
    own = layer.sections()
    experts, hidden_size = layer.router.shape
    router = Section(
        parent + own.router,
        inputs=hidden_size,
        outputs=experts,
        taken_inputs=(0, hidden_size),
        taken_outputs=((0, experts),),
        first_output=0,
        kind="router",
    )
    gate_up, down = (_with_parent(parent, each) for each in (own.gate_up, own.down))

    def attach(memory: LoraMemory, first: int) -> None:
        after_gate_up = first + 1 + sum(len(each) for each in gate_up)
        layer.lora = ExpertSites(
            LoraSite(memory, first, [router]),
            LoraSite(memory, first + 1, gate_up[0], experts),
            LoraSite(memory, after_gate_up, down[0], experts),
        )

    return _LayerSections(
        (router, *chain.from_iterable(gate_up), *chain.from_iterable(down)),
        attach,
        ExpertLayer(parent + own.module, _names(gate_up), _names(down)),
        (parent + own.router_module, router.name),
    )


_Sections = tuple[tuple[Section, ...], ...]


def _with_parent(parent: str, sections: _Sections) -> _Sections:
    return tuple(
        tuple(replace(each, name=parent + each.name) for each in of_expert)
        for of_expert in sections
    )


def _names(sections: _Sections) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(section.name for section in of_expert) for of_expert in sections)


def _table_sections(name: str, table: VocabularyTable) -> tuple[Section, Section]:
    """Of two matrices, and of a whole table."""
    (tokens, hidden_size), taken, every = table.shape, table.taken, (0, table.shape[1])
    whole = Section(f"{name}.weight", hidden_size, tokens, every, (taken,), 0, "table")
    if name == "lm_head":
        return Section(name, hidden_size, tokens, every, (taken,), 0, "head"), whole
    return Section(name, tokens, hidden_size, taken, (every,), 0, "embedding"), whole


def _attach_embedding(
    table: VocabularyTable, sections: tuple[Section, Section], memory: LoraMemory, first: int
) -> None:
    table.embedding_lora = TableSite(LoraSite(memory, first, sections[:1]), first + 1)


def _attach_head(
    table: VocabularyTable, sections: tuple[Section, Section], memory: LoraMemory, first: int
) -> None:
    table.head_lora = TableSite(LoraSite(memory, first, sections[:1]), first + 1)
