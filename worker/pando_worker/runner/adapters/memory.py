"""The device memory of adapters that the settings ask for."""

import logging
from typing import TYPE_CHECKING

import torch
from torch import nn

from pando_worker.adapters.info import RANK_PAGE
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.loading.building import OwnModel
from pando_worker.models.loading.quantize import is_quantized
from pando_worker.models.lora.linear import LoraMemory, lora_bytes
from pando_worker.runner.adapters.sites import attach, layout_of
from pando_worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pando_worker.models.transformers_backend.model import TransformersCausalLM

log = logging.getLogger("pando.worker.runner")


def adapter_bytes(
    settings: WorkerSettings, model: "OwnModel | TransformersCausalLM", dtype: torch.dtype
) -> int:
    """Of this rank's device memory for adapters, 0 without any. The model may be without memory
    yet.

    Raises:
        UnsupportedModel: adapters are asked for, and the model runs through transformers, or its
            attention is latent.
    """
    if not settings.adapter_slots:
        return 0
    if not isinstance(model, CausalLM):
        raise UnsupportedModel(
            "this model runs through transformers, and adapters are for models of pando's own"
            " families only; leave out lora_modules and max_loras"
        )
    if any(layer.latent for layer in model.attention_layers):
        raise UnsupportedModel(
            "this model's attention is latent, and no adapters change such layers yet; leave out"
            " lora_modules and max_loras"
        )
    return lora_bytes(layout_of(model), settings.adapter_pages, _dtype(model, dtype))


def make_memory(
    settings: WorkerSettings,
    model: "OwnModel | TransformersCausalLM",
    dtype: torch.dtype,
    device: torch.device,
) -> LoraMemory | None:
    """Allocates the memory and lets the model's layers use it; None without adapters."""
    if not settings.adapter_slots:
        return None
    assert isinstance(model, CausalLM)
    memory = LoraMemory(
        layout_of(model),
        slots=settings.adapter_slots,
        pages=settings.adapter_pages,
        most_rank=settings.max_lora_rank,
        dtype=_dtype(model, dtype),
        device=device,
    )
    attach(model, memory)
    log.info(
        "device memory for adapters: %d slots, %d ranks in all, %.1f MiB",
        settings.adapter_slots,
        settings.adapter_pages * RANK_PAGE,
        memory.pages.nbytes / 2**20,
    )
    return memory


def _dtype(model: nn.Module, dtype: torch.dtype) -> torch.dtype:
    """bfloat16 beside weights of integers, which are far less exact: a decode step with adapters
    mostly waits for their numbers."""
    return torch.bfloat16 if is_quantized(model) else dtype
