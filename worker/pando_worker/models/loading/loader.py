"""Builds a model from a directory: an empty one first, then its safetensors, tensor by tensor.

Each tensor, or what this rank takes of it, is copied straight into the (part of a) parameter that
it fills, converting its type on the way. So beside its share of the model a rank never holds more
than its share of one tensor.
"""

import logging
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pando_worker.models.base_model import as_with_head
from pando_worker.models.build import Build, Fill
from pando_worker.models.config import ModelConfig, family_config, read_config
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel, mismatch
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.loading.checkpoint import open_checkpoint, weight_files
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.fills import model_fills
from pando_worker.models.loading.quantization import read_quantization
from pando_worker.models.loading.quantize import quantize_weights
from pando_worker.models.loading.schemes.scheme import Scheme
from pando_worker.models.ops import Ops, TorchOps
from pando_worker.models.parallel import ParallelGroup
from pando_worker.models.registry import FAMILIES, family
from pando_worker.models.text_part import text_tensors
from pando_worker.tensors.huge_pages import HUGE, advise_huge_pages

if TYPE_CHECKING:
    from pando_worker.models.transformers_backend.model import TransformersCausalLM

log = logging.getLogger("pando.worker.models")

_CACHE_LINE = 64  # bytes
_ROWS = 4096  # of a matrix that become integers at a time; a multiple of LANES
_FLOATING_POINT = ("F64", "F32", "F16", "BF16")  # as safetensors writes them


def build_model(
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    group: ParallelGroup | None = None,
    context_length: int | None = None,
    ops: Ops | None = None,
    scheme: Scheme | None = None,
) -> "CausalLM | TransformersCausalLM":
    """The model without memory for its parameters yet: enough to know how much they take.

    Args:
        group: the ranks that share it; by default there is one
        context_length: longest sequence that will be served, the model's longest by default
        ops: what our own layers compute with, torch's own by default
        scheme: of weights that are to be integers; all are floating-point by default

    Raises:
        UnsupportedModel: it has something that its family here lacks, and transformers may not or
            cannot run it instead; or it cannot be shared so.
        BrokenCheckpoint: malformed or contradictory fields.
    """
    group = group or ParallelGroup()
    context_length = context_length or config.max_position_embeddings
    read_quantization(config)  # refuses what neither of the two reads
    if config.impl != "transformers" and config.architecture in FAMILIES:
        built = Build(dtype, device, group, context_length, ops or TorchOps(), config.has_head)
        module = family(config.architecture)
        try:
            model: CausalLM = module.build(family_config(config, module.Config), built)
        except UnsupportedModel as reason:
            if config.impl == "pando" or group.size > 1:
                raise
            log.warning("%s; trying transformers instead", reason)
        else:
            if scheme is not None:
                with open_checkpoint(config.path.parent) as tensors:
                    quantize_weights(model, _named(tensors, config), scheme, built)
            log.info("%s runs on pando's own code for it", config.architecture)
            return model
    if config.image_token is not None:
        raise UnsupportedModel(
            f"{config.path} sees images, which no model that runs through transformers does"
        )
    if group.size > 1:
        raise UnsupportedModel(
            f"{config.path} ({config.architecture}) runs through transformers, on one rank only;"
            f" {group.size} were asked for"
        )
    if scheme is not None and not scheme.exact:
        raise UnsupportedModel(
            f"{config.path} ({config.architecture}) runs through transformers, which quantization"
            f" {scheme.name} is not for; use auto or none"
        )
    # Imported here because it takes seconds, and our own families do without.
    from pando_worker.models.transformers_backend.model import TransformersCausalLM

    other = TransformersCausalLM(config, dtype, context_length)
    log.info("%s runs through transformers", config.architecture)
    return other


def weight_bytes(model: nn.Module) -> int:
    """This rank's."""
    return sum(parameter.nbytes for parameter in model.parameters())


def load_weights(
    model: "CausalLM | TransformersCausalLM",
    model_dir: Path,
    device: torch.device,
    scheme: Scheme | None = None,
) -> None:
    """Give `model` memory on `device` and fill it from the files of `model_dir`.

    Args:
        scheme: by which its weights were exchanged, if they were

    Raises:
        BrokenCheckpoint: files missing or unreadable, tensors missing, unknown or misshapen.
    """
    if not isinstance(model, CausalLM):
        weight_files(model_dir)
        model.load(model_dir, device)
        return
    config = read_config(model_dir)
    allocate(model, device)
    unfilled: dict[str, list[Fill]] = {}
    for fill in model_fills(model):
        unfilled.setdefault(fill.name, []).append(fill)
    unexpected: list[str] = []
    if (quantization := read_quantization(config)) is not None and scheme is None:
        log.warning(
            "the weights are %s and are decoded while they load: the model takes the memory and"
            " computes with the speed of an unquantized one",
            quantization.name,
        )
    with open_checkpoint(model_dir) as tensors:
        for path, stored in groupby(_named(tensors, config).items(), lambda item: item[1].path):
            for name, tensor in stored:
                if name in unfilled:
                    _fill(tensor, unfilled.pop(name), scheme)
                elif not _is_redundant(name, model):
                    unexpected.append(name)
            log.info("loaded %s", path.name)
    if unfilled or unexpected:
        raise mismatch(model_dir, unfilled, unexpected)


def _named(tensors: dict[str, Stored], config: ModelConfig) -> dict[str, Stored]:
    """By our families' names, and as if they had never been quantized by `quantization_config`."""
    if (quantization := read_quantization(config)) is not None:
        tensors = quantization.decoded(tensors)
    return as_with_head(text_tensors(tensors))


def allocate(model: nn.Module, device: torch.device) -> None:
    """Give parameters memory: what `to_empty` does, which from "meta" imports a symbolic algebra
    system: a second.

    Parameters stay the same objects, so that what refers to one (`AttentionLayer.sinks`) goes on.
    On a CPU they lie side by side: most are smaller than a huge page, and share some.
    """
    parameters = list(model.parameters())
    if device.type == "cpu":
        memories = _side_by_side(parameters)
    else:
        memories = [torch.empty(each.shape, dtype=each.dtype, device=device) for each in parameters]
    for parameter, memory in zip(parameters, memories, strict=True):
        filled = nn.Parameter(memory, requires_grad=False)
        torch.utils.swap_tensors(parameter, filled)  # type: ignore[no-untyped-call]


def _side_by_side(tensors: list[nn.Parameter]) -> list[Tensor]:
    """Memory of the same shapes and types, each at the start of a cache line."""
    sizes = [-(-tensor.nbytes // _CACHE_LINE) * _CACHE_LINE for tensor in tensors]
    whole = torch.empty(sum(sizes) + HUGE, dtype=torch.uint8)
    whole = whole[-whole.data_ptr() % HUGE :]
    advise_huge_pages(whole)
    parts = torch.split(whole[: sum(sizes)], sizes)
    return [
        part[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for part, tensor in zip(parts, tensors, strict=True)
    ]


def _fill(tensor: Stored, fills: list[Fill], scheme: Scheme | None) -> None:
    for name, wanted, part, memory in fills:
        if tensor.shape != wanted or tensor.dtype not in _FLOATING_POINT:
            raise BrokenCheckpoint(
                f"{tensor.path}: {name} is {tensor.dtype} {list(tensor.shape)}, config.json asks"
                f" for floating point {list(wanted)}"
            )
        if isinstance(memory, Tensor):
            memory.copy_(tensor.read(part, memory.device))
            continue
        assert scheme is not None, "only a scheme exchanges weights"
        rows, columns = part
        for first in range(rows.start, rows.stop, _ROWS):
            some = slice(first, min(first + _ROWS, rows.stop))
            integers = scheme.integers(tensor, (some, columns), memory.grouping)
            memory.put(first - rows.start, integers)


def _is_redundant(name: str, model: CausalLM) -> bool:
    """Tensors that some checkpoints carry although they follow from others."""
    tied_head = name == "lm_head.weight" and model.lm_head is None
    return tied_head or name.endswith(".rotary_emb.inv_freq")
