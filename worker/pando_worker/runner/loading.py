"""Loads a model for a runner: the weights, and a KV pool in the remaining memory."""

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pando_worker.attention.backend import AttentionBackend
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.cuda.device import find_device
from pando_worker.cuda.fp8 import choose_fp8
from pando_worker.cuda.mxfp4 import choose_mxfp4
from pando_worker.models.config import ModelConfig, read_config
from pando_worker.models.errors import DoesNotFit, UnsupportedModel
from pando_worker.models.kinds.encoder_decoder import TextInput, source_positions
from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.loading.building import OwnModel, build_model, weight_bytes
from pando_worker.models.loading.checkpoint import gguf_files
from pando_worker.models.loading.dummy import fill_at_random
from pando_worker.models.loading.hub import resolve_model
from pando_worker.models.loading.loader import load_weights
from pando_worker.models.loading.quantize import is_quantized
from pando_worker.models.loading.schemes.scheme import Scheme
from pando_worker.models.lora.linear import LoraMemory
from pando_worker.models.ops import ChosenOps, TorchOps
from pando_worker.models.parallel import ParallelGroup
from pando_worker.models.sight import blindness
from pando_worker.progress import Report, Stage, unreported
from pando_worker.runner.adapters.memory import adapter_bytes, make_memory
from pando_worker.runner.cpu.quantization import choose_scheme
from pando_worker.runner.kv.host_pool import STAGING_BYTES
from pando_worker.runner.kv.pool_plan import PoolPlan, plan_pool
from pando_worker.runner.precision import chosen_dtype
from pando_worker.runner.step_memory import LargestSteps
from pando_worker.settings import WorkerSettings

if TYPE_CHECKING:  # transformers takes seconds to import, and most models do not need it
    from pando_worker.models.transformers_backend.model import TransformersCausalLM
    from pando_worker.models.transformers_backend.tower import VisionTower

log = logging.getLogger("pando.worker.runner")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    config: ModelConfig
    context_length: int  # tokens that a request may have
    device: torch.device
    dtype: torch.dtype  # of weights and activations
    model: "OwnModel | TransformersCausalLM"
    weight_bytes: int  # this rank's
    quantized: bool  # some weights are integers, which need the kernels
    from_files: bool  # the weights; else they are random
    ops: ChosenOps  # used by the model's layers
    steps: LargestSteps
    plan: PoolPlan
    kv_pool: TokenToKVPool  # of `plan`; on CUDA it has an extra page
    lora: LoraMemory | None  # of adapters, which the model's layers use
    tower: "VisionTower | None"  # of a model that sees
    image_tokens: int  # how many embeddings of image tokens there is room for
    whole_image_tokens: int  # of an image that it sees, if one step must run them all; else 0

    @property
    def capacity_tokens(self) -> int:
        """Of the pool, a multiple of the page size."""
        return self.plan.capacity_tokens

    def with_pool(self, plan: PoolPlan) -> "LoadedModel":
        """The model with another pool."""
        return replace(self, plan=plan, kv_pool=plan.make_pool(self.device))

    def next_logits(
        self, input_ids: Tensor, positions: Tensor, attention: AttentionBackend
    ) -> Tensor:
        """Logits after every token, float32 [num_tokens, vocab_size]; arguments as in the model."""
        logits: Tensor = self.model.logits(self.model(input_ids, positions, attention))
        return logits


def load_model(
    settings: WorkerSettings, group: ParallelGroup, report: Report = unreported
) -> LoadedModel:
    """Load this rank's share of the model that the settings name. On CUDA its pool is as large as
    trial steps need, until these have shown how much memory steps take.

    Raises:
        ModelError: the model is not found, not supported, broken or does not fit.
    """
    started = time.monotonic()
    report(Stage.WEIGHTS, 0.0)
    model_dir = resolve_model(settings.model)
    config = read_config(model_dir, settings.model_impl)
    if config.encoder is not None:
        _check_encoder_decoder(settings, config)
    device = find_device(settings.device, group.rank, group.size)
    dtype = chosen_dtype(settings)
    context_length = _context_length(settings, config)
    ops = ChosenOps(TorchOps())
    scheme = choose_scheme(settings, dtype, is_gguf=bool(gguf_files(model_dir)))
    tower = _tower(settings, config, dtype, device)
    image_bytes = settings.image_cache_mib * 2**20 if tower else 0
    fp8 = choose_fp8(settings, device, dtype)
    mxfp4 = choose_mxfp4(settings, device, dtype)
    model = build_model(
        config,
        dtype,
        device,
        group,
        context_length,
        ops,
        scheme,
        fp8,
        mxfp4,
        expert_parallel=settings.enable_expert_parallel,
    )
    if settings.enable_expert_parallel:
        _check_experts(config, model)
    whole_image_tokens = config.whole_image_tokens if tower else 0
    beside = adapter_bytes(settings, model, dtype) + image_bytes
    if device.type == "cuda" and settings.host_memory_gib:
        beside += 2 * STAGING_BYTES
    plan = plan_pool(
        settings,
        model.attention_layers,
        dtype=dtype,
        weight_bytes=weight_bytes(model) + (weight_bytes(tower) if tower else 0) + beside,
        context_length=context_length,
        chunk_tokens=max(settings.chunked_prefill_size, whole_image_tokens),
        device=device,
        group=group,
    )
    if config.encoder is not None:
        longest = source_positions(config.encoder, context_length)
        _check_room(longest, plan, settings.page_size)
    _fill(settings, model, model_dir, device, scheme, report)
    quantized = is_quantized(model)
    seconds = time.monotonic() - started
    kept = f"{dtype}, weights {scheme.name}" if scheme and quantized else dtype
    log.info("%s loaded in %.1f s as %s", model_dir, seconds, kept)
    steps = LargestSteps(
        rows=settings.max_running_requests,
        chunk_tokens=max(settings.chunked_prefill_size, whole_image_tokens),
        longest=min(context_length, plan.capacity_tokens),
        capacity_tokens=plan.capacity_tokens,
        page_size=settings.page_size,
        vocab_size=config.vocab_size,
    )
    if device.type == "cuda":
        plan = plan.for_trial(steps.pool_tokens)
    return LoadedModel(
        config=config,
        context_length=context_length,
        device=device,
        dtype=dtype,
        model=model,
        weight_bytes=weight_bytes(model) + (weight_bytes(tower) if tower else 0),
        quantized=quantized,
        from_files=settings.load_format == "auto",
        ops=ops,
        steps=steps,
        plan=plan,
        kv_pool=plan.make_pool(device),
        lora=make_memory(settings, model, dtype, device),
        tower=tower,
        image_tokens=image_bytes // tower.embedding_bytes if tower else 0,
        whole_image_tokens=whole_image_tokens,
    )


def _tower(
    settings: WorkerSettings, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> "VisionTower | None":
    """The vision tower, which every rank has whole."""
    if config.image_token is None:
        return None
    if reason := blindness(config):
        log.warning("this model could see images but reads text only here: %s", reason)
        return None
    if settings.load_format == "dummy":
        raise UnsupportedModel("load_format 'dummy' is not for models that see")
    from pando_worker.models.transformers_backend.tower import VisionTower
    from pando_worker.runner.tower_trial import try_tower

    tower = VisionTower(config, dtype, device)
    try_tower(tower, config)
    return tower


def _check_encoder_decoder(settings: WorkerSettings, config: ModelConfig) -> None:
    """Raises UnsupportedModel for settings that encoder-decoders do not have yet."""
    lacking = {
        f"device {settings.device}": settings.device != "cpu",
        f"quantization {settings.quantization}": settings.quantization not in ("auto", "none"),
        "max_loras": bool(settings.max_loras),
    }
    if refused := [name for name, is_set in lacking.items() if is_set]:
        raise UnsupportedModel(
            f"{config.path} ({config.architecture}) is an encoder-decoder, and these do not run"
            f" with {refused[0]} yet: they run with device cpu, with floating-point weights, and"
            " without adapters"
        )


def _check_experts(config: ModelConfig, model: nn.Module) -> None:
    """Raises UnsupportedModel for a model without any."""
    if not any(isinstance(module, MixtureOfExperts) for module in model.modules()):
        raise UnsupportedModel(
            f"enable_expert_parallel is for mixtures of experts, and {config.path}"
            f" ({config.architecture}) has none"
        )


def _check_room(longest: int, plan: PoolPlan, page_size: int) -> None:
    """Raises DoesNotFit if there is no room for a token beside the longest source."""
    needed = (-(-longest // page_size) + 1) * page_size
    if plan.capacity_tokens < needed:
        raise DoesNotFit(
            f"the KV pool holds {plan.capacity_tokens} tokens, and a request needs {needed}: the"
            f" {longest} positions of its source and a page; allow more memory_gib or"
            " max_total_tokens"
        )


def _context_length(settings: WorkerSettings, config: ModelConfig) -> int:
    longest = config.max_position_embeddings
    wanted = settings.context_length or longest
    is_relative = isinstance(config.encoder, TextInput) and config.encoder.is_relative
    if wanted > longest and not is_relative:
        raise UnsupportedModel(
            f"context_length {wanted} exceeds the {longest} positions of {config.path.parent}"
        )
    return wanted


def _fill(
    settings: WorkerSettings,
    model: "OwnModel | TransformersCausalLM",
    model_dir: Path,
    device: torch.device,
    scheme: Scheme | None,
    report: Report,
) -> None:
    if settings.load_format == "auto":
        load_weights(model, model_dir, device, scheme, report)
    elif isinstance(model, OwnModel):
        fill_at_random(model, device)
    else:
        raise UnsupportedModel("load_format 'dummy' does not support models of transformers")
