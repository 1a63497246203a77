"""Loads a model for a runner: its weights, and a KV pool in the memory that these leave."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.cuda.device import find_device, memory_for_model
from pando_worker.memory.kv_pool import (
    KVBudget,
    TokenToKVPool,
    WindowShare,
    kv_cell_bytes,
    windowed_layers,
)
from pando_worker.models.config import ModelConfig, read_config
from pando_worker.models.dummy import fill_at_random
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.hub import resolve_model
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.loader import build_model, load_weights, weight_bytes
from pando_worker.models.ops import ChosenOps, TorchOps
from pando_worker.models.parallel import ParallelGroup
from pando_worker.settings import DType, KVCacheDType, WorkerSettings

if TYPE_CHECKING:  # transformers takes seconds to import, and most models do not need it
    from pando_worker.models.transformers_backend.model import TransformersCausalLM

log = logging.getLogger("pando.worker.runner")

_AUTO_DTYPES = {
    # Measured on a CPU without half-precision units: bfloat16 prefills 8 times slower, float16 4.
    "cpu": torch.float32,
    "cuda": torch.bfloat16,
}

_DTYPES = {
    DType.FLOAT32: torch.float32,
    DType.BFLOAT16: torch.bfloat16,
    DType.FLOAT16: torch.float16,
}

_KV_DTYPES = {
    KVCacheDType.BFLOAT16: torch.bfloat16,
    KVCacheDType.FP8_E4M3: torch.float8_e4m3fn,
}


def _window_share(
    settings: WorkerSettings,
    layers: Sequence[AttentionLayer],
    context_length: int,
    kv_dtype: torch.dtype,
) -> WindowShare | None:
    """What decides how much of the pool the window layers get; None where all layers share one."""
    windowed = windowed_layers(layers, context_length)
    if not windowed or settings.window_ratio == 1:
        return None
    return WindowShare(
        cell_bytes=kv_cell_bytes((layers[index] for index in windowed), kv_dtype),
        ratio=settings.window_ratio,
        window=max(layers[index].window or 0 for index in windowed),
        chunk_tokens=settings.chunked_prefill_size,
        context_length=context_length,
    )


def _capacities(
    budget: KVBudget, share: WindowShare | None, group: ParallelGroup
) -> tuple[int, int]:
    """Tokens of the pool, and of the window layers' own, 0 where there is none; for all ranks.

    Raises:
        DoesNotFit: not even one page does.
    """
    shared = group.smallest(budget.capacity())
    if share is None:
        return shared, 0
    tokens, window_tokens = map(group.smallest, budget.split(share))
    if window_tokens:
        return tokens, window_tokens
    log.info(
        "layers with a window share the KV pool: a request may need %d of its %d tokens for them",
        share.least_tokens(budget.page_size),
        shared,
    )
    return shared, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    config: ModelConfig
    context_length: int  # tokens that a request may have
    device: torch.device
    dtype: torch.dtype  # of weights and activations
    model: "CausalLM | TransformersCausalLM"
    weight_bytes: int  # this rank's
    ops: ChosenOps  # what the model's layers compute with
    kv_pool: TokenToKVPool
    capacity_tokens: int  # of the pool, a multiple of the page size; on CUDA it has a page more

    def next_logits(
        self, input_ids: Tensor, positions: Tensor, attention: AttentionBackend
    ) -> Tensor:
        """Logits after every token, float32 [num_tokens, vocab_size]; arguments as the model's."""
        logits: Tensor = self.model.logits(self.model(input_ids, positions, attention))
        return logits


def load_model(settings: WorkerSettings, group: ParallelGroup) -> LoadedModel:
    """Load this rank's share of the model that the settings name.

    Raises:
        ModelError: it is not found, not supported, broken or does not fit.
    """
    started = time.monotonic()
    device = find_device(settings.device, group.rank, group.size)
    dtype = _DTYPES.get(settings.dtype, _AUTO_DTYPES[settings.device])
    kv_dtype = _KV_DTYPES.get(settings.kv_cache_dtype, dtype)
    model_dir = resolve_model(settings.model)
    config = read_config(model_dir, settings.model_impl)
    context_length = settings.context_length or config.max_position_embeddings
    if context_length > config.max_position_embeddings:
        raise UnsupportedModel(
            f"context_length {context_length} exceeds the"
            f" {config.max_position_embeddings} positions of {model_dir}"
        )

    ops = ChosenOps(TorchOps())
    model = build_model(config, dtype, device, group, context_length, ops)
    gib = settings.memory_gib
    wanted = None if gib is None else int(gib * 2**30) // group.size
    # A page of each pool that nobody owns, for the rows that fill up a CUDA graph.
    spare_pages = 1 if device.type == "cuda" else 0
    budget = KVBudget(
        memory_bytes=memory_for_model(device, wanted),
        weight_bytes=weight_bytes(model),
        mem_fraction_static=settings.mem_fraction_static,
        cell_bytes=kv_cell_bytes(model.attention_layers, kv_dtype),
        page_size=settings.page_size,
        max_total_tokens=settings.max_total_tokens,
        spare_pages=spare_pages,
    )
    share = _window_share(settings, model.attention_layers, context_length, kv_dtype)
    capacity_tokens, window_slots = _capacities(budget, share, group)
    if settings.load_format == "dummy":
        if not isinstance(model, CausalLM):
            raise UnsupportedModel("load_format 'dummy' is not for what runs through transformers")
        fill_at_random(model, device)
    else:
        load_weights(model, model_dir, device)
    windowed = windowed_layers(model.attention_layers, context_length)
    kv_pool = TokenToKVPool(
        model.attention_layers,
        capacity_tokens,
        kv_dtype,
        device,
        windowed=windowed if window_slots else frozenset(),
        window_slots=window_slots,
        spare_slots=spare_pages * settings.page_size,
    )
    log.info(
        "%s loaded in %.1f s as %s; KV pool of %d tokens as %s: %s",
        model_dir,
        time.monotonic() - started,
        dtype,
        capacity_tokens,
        kv_dtype,
        budget,
    )
    if window_slots:
        told = "%d layers with windows up to %d hold %d tokens and release what is behind"
        log.info(told, len(kv_pool.windowed), kv_pool.window, window_slots)
    return LoadedModel(
        config=config,
        context_length=context_length,
        device=device,
        dtype=dtype,
        model=model,
        weight_bytes=weight_bytes(model),
        ops=ops,
        kv_pool=kv_pool,
        capacity_tokens=capacity_tokens,
    )
