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

from pando_worker.models.build import Build, Fill
from pando_worker.models.config import ModelConfig, family_config, read_config
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel, mismatch
from pando_worker.models.fp8 import Fp8Matrix, Fp8Products
from pando_worker.models.kinds.base_model import as_with_head
from pando_worker.models.kinds.text_part import text_tensors
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear
from pando_worker.models.layers.seq2seq import EncoderDecoder
from pando_worker.models.layers.text_encoder import TextEncoder
from pando_worker.models.layers.weight import Fp8Weight
from pando_worker.models.loading.checkpoint import open_checkpoint, weight_files
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.fills import model_fills
from pando_worker.models.loading.keep_halves import keep_halves
from pando_worker.models.loading.keep_narrow import keep_fp8, keep_mxfp4
from pando_worker.models.loading.quantization import (
    Fp8,
    Mxfp4,
    Mxfp4Tensor,
    Quantization,
    ScaledTensor,
    read_quantization,
)
from pando_worker.models.loading.quantize import quantize_weights
from pando_worker.models.loading.schemes.scheme import Scheme
from pando_worker.models.mixture import FusedExperts
from pando_worker.models.mxfp4 import Mxfp4Matrix
from pando_worker.models.ops import Ops, TorchOps
from pando_worker.models.parallel import ParallelGroup
from pando_worker.models.registry import FAMILIES, family
from pando_worker.progress import Report, Stage, unreported
from pando_worker.tensors.huge_pages import HUGE, advise_huge_pages

if TYPE_CHECKING:
    from pando_worker.models.transformers_backend.model import TransformersCausalLM

OwnModel = CausalLM | EncoderDecoder
"""A model that runs on a family's code here."""

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
    fp8: Fp8Products | None = None,
    mxfp4: FusedExperts | None = None,
    *,
    expert_parallel: bool = False,
) -> "OwnModel | TransformersCausalLM":
    """The model without memory for its parameters yet: enough to know how much they take.

    Args:
        group: the ranks that share it; by default there is one
        context_length: longest sequence that will be served, the model's longest by default
        ops: what our own layers compute with, torch's own by default
        scheme: of weights that are to be integers; all are floating-point by default
        fp8: the device's products, if fp8 weights stay as they are; by default they are decoded
        mxfp4: the device's kernels, if experts in mxfp4 stay as they are; likewise
        expert_parallel: as of `Build`

    Raises:
        UnsupportedModel: it has something that its family here lacks, and transformers may not or
            cannot run it instead; or it cannot be shared so.
        BrokenCheckpoint: malformed or contradictory fields.
    """
    group = group or ParallelGroup()
    context_length = context_length or config.max_position_embeddings
    read_quantization(config)  # refuses what neither of the two reads
    if config.impl != "transformers" and config.architecture in FAMILIES:
        built = Build(
            dtype,
            device,
            group,
            context_length,
            ops or TorchOps(),
            has_head=config.has_head,
            labels=_labels(config),
            expert_parallel=expert_parallel,
        )
        module = family(config.architecture)
        try:
            model = module.build(family_config(config, module.Config), built)
        except UnsupportedModel as reason:
            if config.impl == "pando" or group.size > 1:
                raise
            log.warning("%s; trying transformers instead", reason)
        else:
            assert isinstance(model, OwnModel), "text encoders are built by build_text_encoder"
            if scheme is not None and isinstance(model, CausalLM):
                with open_checkpoint(config.path.parent) as tensors:
                    quantize_weights(model, _named(tensors, config, model), scheme, built)
            if scheme is not None and isinstance(model, EncoderDecoder):
                with open_checkpoint(config.path.parent) as tensors:
                    keep_halves(model, _named(tensors, config, model))
            if fp8 is not None and isinstance(model, CausalLM) and _is(config, Fp8):
                with open_checkpoint(config.path.parent) as tensors:
                    keep_fp8(model, _named(tensors, config, model), fp8)
            if mxfp4 is not None and isinstance(model, CausalLM) and _is(config, Mxfp4):
                keep_mxfp4(model, mxfp4)
            log.info("%s runs on pando's own code for it", config.architecture)
            return model
    if config.classifier is not None:
        raise UnsupportedModel(
            f"{config.path} ({config.architecture}) runs through transformers and classifies;"
            " only families with code of Pando's own do that"
        )
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


def build_text_encoder(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, context_length: int
) -> TextEncoder:
    """Like `build_model`, of a model whose tokens all see each other.

    Raises:
        UnsupportedModel: it has something that its family here lacks.
        BrokenCheckpoint: malformed or contradictory fields.
    """
    built = Build(
        dtype, device, ParallelGroup(), context_length, has_head=False, labels=_labels(config)
    )
    module = family(config.architecture)
    model = module.build(family_config(config, module.Config), built)
    assert isinstance(model, TextEncoder), "the registry has no other family of this name"
    return model


def _labels(config: ModelConfig) -> int:
    return len(config.classifier.labels) if config.classifier else 0


def weight_bytes(model: nn.Module) -> int:
    """This rank's."""
    return sum(parameter.nbytes for parameter in model.parameters())


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
        named = _named(tensors, config, model)
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


def _is(config: ModelConfig, kind: type[Fp8 | Mxfp4]) -> bool:
    return isinstance(read_quantization(config), kind)


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


def _named(
    tensors: dict[str, Stored], config: ModelConfig, model: "OwnModel | TextEncoder"
) -> dict[str, Stored]:
    """By our families' names, and as if they had never been quantized by `quantization_config`."""
    if (quantization := read_quantization(config)) is not None:
        tensors = quantization.decoded(tensors)
    if isinstance(model, TextEncoder):
        return _of_text_encoder(tensors, model)
    return as_with_head(text_tensors(tensors))


def _of_text_encoder(tensors: dict[str, Stored], model: TextEncoder) -> dict[str, Stored]:
    """By our families' names. Old checkpoints have other names for the weights of norms."""
    return {
        name.removeprefix(model.base)
        .replace("LayerNorm.gamma", "LayerNorm.weight")
        .replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in tensors.items()
    }


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
