"""Builds a model from a directory's configuration, without memory for its parameters yet."""

import logging
from typing import TYPE_CHECKING

import torch
from torch import nn

from pando_worker.models.build import Build
from pando_worker.models.config import ModelConfig, family_config
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.fp8 import Fp8Products
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.seq2seq import EncoderDecoder
from pando_worker.models.layers.text_encoder import TextEncoder
from pando_worker.models.loading.checkpoint import open_checkpoint
from pando_worker.models.loading.keep_halves import keep_halves
from pando_worker.models.loading.keep_narrow import keep_fp8, keep_mxfp4
from pando_worker.models.loading.named_tensors import named_tensors
from pando_worker.models.loading.quantization import Fp8, Mxfp4, read_quantization
from pando_worker.models.loading.quantize import quantize_weights
from pando_worker.models.loading.schemes.scheme import Scheme
from pando_worker.models.mixture import FusedExperts
from pando_worker.models.ops import Ops, TorchOps
from pando_worker.models.parallel import ParallelGroup
from pando_worker.models.registry import FAMILIES, family

if TYPE_CHECKING:
    from pando_worker.models.transformers_backend.model import TransformersCausalLM

OwnModel = CausalLM | EncoderDecoder
"""A model that runs on a family's code here."""

log = logging.getLogger("pando.worker.models")


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
            _keep_narrow(model, config, built, scheme, fp8, mxfp4)
            log.info("%s runs on pando's own code for it", config.architecture)
            return model
    _check_transformers(config, group, scheme)
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


def _keep_narrow(
    model: OwnModel,
    config: ModelConfig,
    built: Build,
    scheme: Scheme | None,
    fp8: Fp8Products | None,
    mxfp4: FusedExperts | None,
) -> None:
    """Exchanges the weights that become integers, or stay as narrow as the checkpoint has them."""
    if scheme is not None and isinstance(model, CausalLM):
        with open_checkpoint(config.path.parent) as tensors:
            quantize_weights(model, named_tensors(tensors, config, model), scheme, built)
    if scheme is not None and isinstance(model, EncoderDecoder):
        with open_checkpoint(config.path.parent) as tensors:
            keep_halves(model, named_tensors(tensors, config, model))
    if fp8 is not None and isinstance(model, CausalLM) and _is(config, Fp8):
        with open_checkpoint(config.path.parent) as tensors:
            keep_fp8(model, named_tensors(tensors, config, model), fp8)
    if mxfp4 is not None and isinstance(model, CausalLM) and _is(config, Mxfp4):
        keep_mxfp4(model, mxfp4)


def _check_transformers(config: ModelConfig, group: ParallelGroup, scheme: Scheme | None) -> None:
    """Refuses what no model that runs through transformers does."""
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


def _is(config: ModelConfig, kind: type[Fp8 | Mxfp4]) -> bool:
    return isinstance(read_quantization(config), kind)


def _labels(config: ModelConfig) -> int:
    return len(config.classifier.labels) if config.classifier else 0


def weight_bytes(model: nn.Module) -> int:
    """This rank's."""
    return sum(parameter.nbytes for parameter in model.parameters())
