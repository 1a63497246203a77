"""Builds a model from a directory: an empty one first, then its safetensors, tensor by tensor.

Each tensor, or what this rank takes of it, is copied straight into the (part of a) parameter that
it fills, converting its type on the way. So beside its share of the model a rank never holds more
than its share of one tensor.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from pando_worker.models.build import Build, Fill
from pando_worker.models.config import ModelConfig, family_config
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel, mismatch
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.ops import Ops, TorchOps
from pando_worker.models.parallel import ParallelGroup
from pando_worker.models.registry import FAMILIES, family

if TYPE_CHECKING:
    from pando_worker.models.transformers_backend.model import TransformersCausalLM

log = logging.getLogger("pando.worker.models")

_FLOATING_POINT = ("F64", "F32", "F16", "BF16")  # as safetensors writes them


class _Index(msgspec.Struct):
    weight_map: dict[str, str]  # tensor: file


def build_model(
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    group: ParallelGroup | None = None,
    context_length: int | None = None,
    ops: Ops | None = None,
) -> "CausalLM | TransformersCausalLM":
    """The model without memory for its parameters yet: enough to know how much they take.

    Args:
        group: the ranks that share it; by default there is one
        context_length: longest sequence that will be served, the model's longest by default
        ops: what our own layers compute with, torch's own by default

    Raises:
        UnsupportedModel: it has something that its family here lacks, and transformers may not or
            cannot run it instead; or it cannot be shared so.
        BrokenCheckpoint: malformed or contradictory fields.
    """
    group = group or ParallelGroup()
    context_length = context_length or config.max_position_embeddings
    if config.impl != "transformers" and config.architecture in FAMILIES:
        built = Build(dtype, device, group, context_length, ops or TorchOps())
        module = family(config.architecture)
        try:
            return module.build(family_config(config, module.Config), built)
        except UnsupportedModel as reason:
            if config.impl == "pando" or group.size > 1:
                raise
            log.warning("%s; trying transformers instead", reason)
    if group.size > 1:
        raise UnsupportedModel(
            f"{config.path} ({config.architecture}) runs through transformers, on one rank only;"
            f" {group.size} were asked for"
        )
    # Imported here because it takes seconds, and our own families do without.
    from pando_worker.models.transformers_backend.model import TransformersCausalLM

    return TransformersCausalLM(config, dtype, context_length)


def weight_bytes(model: nn.Module) -> int:
    """This rank's."""
    return sum(parameter.nbytes for parameter in model.parameters())


def load_weights(
    model: "CausalLM | TransformersCausalLM", model_dir: Path, device: torch.device
) -> None:
    """Give `model` memory on `device` and fill it from the safetensors files of `model_dir`.

    Raises:
        BrokenCheckpoint: files missing or unreadable, tensors missing, unknown or misshapen.
    """
    files = _weight_files(model_dir)
    if not isinstance(model, CausalLM):
        model.load(model_dir, device)
        return
    _allocate(model, device)
    unfilled: dict[str, list[Fill]] = {}
    for fill in _fills(model):
        unfilled.setdefault(fill.name, []).append(fill)
    known = set(unfilled)
    unexpected: list[str] = []
    for number, path in enumerate(files, start=1):
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118, it is no dict and cannot be iterated
                if name in unfilled:
                    _fill(file, unfilled.pop(name), path)
                elif name in known:
                    raise BrokenCheckpoint(f"{path} has the tensor {name} a second time")
                elif not _is_redundant(name, model):
                    unexpected.append(name)
        if len(files) > 1:
            log.info("loaded %s (%d of %d)", path.name, number, len(files))
    if unfilled or unexpected:
        raise mismatch(model_dir, unfilled, unexpected)


def _allocate(model: nn.Module, device: torch.device) -> None:
    """What `to_empty` does, which from "meta" imports a symbolic algebra system: a second.

    Parameters stay the same objects, so that what refers to one (`AttentionLayer.sinks`) goes on.
    """
    for parameter in model.parameters():
        memory = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
        filled = nn.Parameter(memory, requires_grad=False)
        torch.utils.swap_tensors(parameter, filled)  # type: ignore[no-untyped-call]


def _weight_files(model_dir: Path) -> list[Path]:
    index, single = model_dir / "model.safetensors.index.json", model_dir / "model.safetensors"
    if index.is_file():
        try:
            weight_map = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
        except (OSError, msgspec.DecodeError) as error:
            raise BrokenCheckpoint(f"cannot read {index}: {error}") from error
        return [model_dir / name for name in sorted(set(weight_map.values()))]
    if single.is_file():
        return [single]
    raise BrokenCheckpoint(
        f"{model_dir} has neither model.safetensors nor model.safetensors.index.json: only weights"
        " in safetensors format are read"
    )


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise BrokenCheckpoint(f"cannot read {path}: {error}") from error


def _fills(model: nn.Module) -> Iterator[Fill]:
    """All that the checkpoint must have, and the memory that it fills."""
    for name, module in model.named_modules():
        if hasattr(module, "fills"):
            parent = name.rpartition(".")[0]
            prefix = f"{parent}." if parent else ""
            for fill in module.fills():
                yield fill._replace(name=prefix + fill.name)
        else:
            for kind, parameter in module.named_parameters(recurse=False):
                part = tuple(slice(0, size) for size in parameter.shape)
                yield Fill(f"{name}.{kind}", tuple(parameter.shape), part, parameter)


def _fill(file: Any, fills: list[Fill], path: Path) -> None:
    """From one tensor of an open file."""
    tensor = file.get_slice(fills[0].name)
    shape, dtype = tuple(tensor.get_shape()), tensor.get_dtype()
    for name, wanted, part, memory in fills:
        if shape != wanted or dtype not in _FLOATING_POINT:
            raise BrokenCheckpoint(
                f"{path}: {name} is {dtype} {list(shape)}, config.json asks for floating point"
                f" {list(wanted)}"
            )
        memory.copy_(tensor[part])


def _is_redundant(name: str, model: CausalLM) -> bool:
    """Tensors that some checkpoints carry although they follow from others."""
    tied_head = name == "lm_head.weight" and model.lm_head is None
    return tied_head or name.endswith(".rotary_emb.inv_freq")
