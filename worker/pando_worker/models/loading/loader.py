"""Fills a model from a directory, tensor by tensor.

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

from pando_worker.models.build import Fill
from pando_worker.models.config import read_config
from pando_worker.models.errors import BrokenCheckpoint, mismatch
from pando_worker.models.fp8 import Fp8Matrix
from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear
from pando_worker.models.layers.seq2seq import EncoderDecoder
from pando_worker.models.layers.text_encoder import TextEncoder
from pando_worker.models.layers.weight import Fp8Weight
from pando_worker.models.loading.allocation import allocate
from pando_worker.models.loading.building import OwnModel
from pando_worker.models.loading.checkpoint import open_checkpoint, weight_files
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.fills import model_fills
from pando_worker.models.loading.named_tensors import named_tensors
from pando_worker.models.loading.quantization import (
    Mxfp4,
    Mxfp4Tensor,
    Quantization,
    ScaledTensor,
    read_quantization,
)
from pando_worker.models.loading.schemes.scheme import Scheme
from pando_worker.models.mxfp4 import Mxfp4Matrix
from pando_worker.progress import Report, Stage, unreported

if TYPE_CHECKING:
    from pando_worker.models.transformers_backend.model import TransformersCausalLM


log = logging.getLogger("pando.worker.models")

_ROWS = 4096  # of a matrix that become integers at a time; a multiple of LANES
_FLOATING_POINT = ("F64", "F32", "F16", "BF16")  # as safetensors writes them


def load_weights(
    model: "OwnModel | TextEncoder | TransformersCausalLM",
    model_dir: Path,
    device: torch.device,
    scheme: Scheme | None = None,
    report: Report = unreported,
) -> None:
    """Give `model` memory on `device` and fill it from the files of `model_dir`.

    Args:
        scheme: by which its weights were exchanged, if they were
        report: called with the share of its weights that it has

    Raises:
        BrokenCheckpoint: files missing or unreadable, tensors missing, unknown or misshapen.
    """
    if not isinstance(model, OwnModel | TextEncoder):
        weight_files(model_dir)
        model.load(model_dir, device)
        return
    config = read_config(model_dir)
    allocate(model, device)
    unfilled: dict[str, list[Fill]] = {}
    for fill in model_fills(model):
        unfilled.setdefault(fill.name, []).append(fill)
    unexpected: list[str] = []
    elsewhere = _of_other_ranks(model)
    if (quantization := read_quantization(config)) is not None and scheme is None:
        _log_decoded(quantization, model)
    whole = len(unfilled)
    with open_checkpoint(model_dir) as tensors:
        named = named_tensors(tensors, config, model)
        for path, stored in groupby(named.items(), lambda item: item[1].path):
            for name, tensor in stored:
                if name in unfilled:
                    _fill(tensor, unfilled.pop(name), scheme)
                    report(Stage.WEIGHTS, 1 - len(unfilled) / whole)
                elif name not in elsewhere and not _is_redundant(name, model):
                    unexpected.append(name)
            log.info("loaded %s", path.name)
    if isinstance(model, EncoderDecoder):
        for name in model.optional & unfilled.keys():
            for fill in unfilled.pop(name):
                assert isinstance(fill.memory, Tensor), "only weights of layers become integers"
                fill.memory.zero_()
    if unfilled or unexpected:
        raise mismatch(model_dir, unfilled, unexpected)


def _of_other_ranks(model: nn.Module) -> set[str]:
    """Names of tensors that only other ranks need."""
    return {
        f"{name.rpartition('.')[0]}.{tensor}"
        for name, module in model.named_modules()
        if isinstance(module, MixtureOfExperts)
        for tensor in module.elsewhere()
    }


def _log_decoded(quantization: Quantization, model: nn.Module) -> None:
    of_experts = isinstance(quantization, Mxfp4)
    what = "mixtures" if of_experts else "linear layers and mixtures"
    layers = [
        module
        for module in model.modules()
        if isinstance(module, MixtureOfExperts)
        or (isinstance(module, ColumnParallelLinear | RowParallelLinear) and not of_experts)
    ]
    kept = sum(_stays_narrow(layer) for layer in layers)
    if kept:
        log.info("%d of %d %s stay in %s", kept, len(layers), what, quantization.name)
    if kept < len(layers):
        log.warning(
            "the weights%s are %s and are decoded while they load: the model takes the memory and"
            " computes with the speed of an unquantized one",
            " of the others" if kept else "",
            quantization.name,
        )


def _stays_narrow(layer: ColumnParallelLinear | RowParallelLinear | MixtureOfExperts) -> bool:
    if isinstance(layer, MixtureOfExperts):
        return layer.gate_up_scales is not None
    return isinstance(layer.weight, Fp8Weight)


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
        if isinstance(memory, Fp8Matrix | Mxfp4Matrix):
            assert isinstance(tensor, ScaledTensor | Mxfp4Tensor), "only such weights are kept"
            kept = tensor.kept(part, memory.values.device)
            memory.values.copy_(kept.values)
            memory.scales.copy_(kept.scales)
            continue
        assert scheme is not None, "only a scheme exchanges weights"
        rows, columns = part
        for first in range(rows.start, rows.stop, _ROWS):
            some = slice(first, min(first + _ROWS, rows.stop))
            integers = scheme.integers(tensor, (some, columns), memory.grouping)
            memory.put(first - rows.start, integers)


def _is_redundant(name: str, model: OwnModel | TextEncoder) -> bool:
    """Tensors that some checkpoints carry although they follow from others, or nothing needs
    them."""
    if isinstance(model, TextEncoder):
        return name.startswith(model.unused)
    if isinstance(model, EncoderDecoder):
        return name in model.redundant
    tied_head = name == "lm_head.weight" and model.lm_head is None
    return tied_head or name.startswith(model.unused) or name.endswith(".rotary_emb.inv_freq")
