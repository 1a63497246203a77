"""Builds a model from a directory: an empty one first, then its safetensors, tensor by tensor.

Each tensor is copied straight into the (part of a) parameter that it fills, converting its type on
the way, so that beside the model there is never more than one tensor, mapped from its file.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from pando_worker.models.config import ModelConfig
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.layers import FusedLinear, RotaryEmbedding
from pando_worker.models.llama import LlamaForCausalLM

log = logging.getLogger("pando.worker.models")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]  # tensor: file


def build_model(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> LlamaForCausalLM:
    """The model without memory for its parameters yet: enough to know how much they take."""
    rotary = RotaryEmbedding(config.rope, config.head_dim, dtype, device)
    with torch.device("meta"):
        return LlamaForCausalLM(config, rotary).to(dtype).requires_grad_(False)


def weight_bytes(model: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in model.parameters())


def load_weights(model: LlamaForCausalLM, model_dir: Path, device: torch.device) -> None:
    """Give `model` memory on `device` and fill it from the safetensors files of `model_dir`.

    Raises:
        BrokenCheckpoint: files missing or unreadable, tensors missing, unknown or misshapen.
    """
    files = _weight_files(model_dir)
    _allocate(model, device)
    unfilled = _destinations(model)
    known = set(unfilled)
    unexpected: list[str] = []
    for number, path in enumerate(files, start=1):
        for name, tensor in _read(path):
            if name in unfilled:
                _fill(unfilled.pop(name), name, tensor, path)
            elif name in known:
                raise BrokenCheckpoint(f"{path} has the tensor {name} a second time")
            elif not _is_redundant(name, model):
                unexpected.append(name)
        if len(files) > 1:
            log.info("loaded %s (%d of %d)", path.name, number, len(files))
    if unfilled or unexpected:
        raise BrokenCheckpoint(
            f"the weights in {model_dir} do not match its config.json:"
            f" missing {_summary(list(unfilled))}; unexpected {_summary(unexpected)}"
        )


def _allocate(model: nn.Module, device: torch.device) -> None:
    """What `to_empty` does, which from "meta" imports a symbolic algebra system: a second."""
    for module in model.modules():
        for name, meta in list(module.named_parameters(recurse=False)):
            memory = torch.empty(meta.shape, dtype=meta.dtype, device=device)
            setattr(module, name, nn.Parameter(memory, requires_grad=False))


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


def _read(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118, it is no dict and cannot be iterated
                yield name, file.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise BrokenCheckpoint(f"cannot read {path}: {error}") from error


def _destinations(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor that the checkpoint must have, and the memory that it fills."""
    fused = {name: m for name, m in model.named_modules() if isinstance(m, FusedLinear)}
    destinations: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        owner, kind = name.rsplit(".", 1)
        if module := fused.get(owner):
            parent = owner.rsplit(".", 1)[0]
            parts = torch.split(parameter, list(module.parts.values()))
            for part, memory in zip(module.parts, parts, strict=True):
                destinations[f"{parent}.{part}.{kind}"] = memory
        else:
            destinations[name] = parameter
    return destinations


def _fill(memory: Tensor, name: str, tensor: Tensor, path: Path) -> None:
    if tensor.shape != memory.shape or not tensor.is_floating_point():
        raise BrokenCheckpoint(
            f"{path}: {name} is {tensor.dtype} {list(tensor.shape)}, config.json asks for floating"
            f" point {list(memory.shape)}"
        )
    memory.copy_(tensor)


def _is_redundant(name: str, model: LlamaForCausalLM) -> bool:
    """Tensors that some checkpoints carry although they follow from others."""
    tied_head = name == "lm_head.weight" and model.lm_head is None
    return tied_head or name.endswith(".rotary_emb.inv_freq")


def _summary(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:4]) or "none"
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
