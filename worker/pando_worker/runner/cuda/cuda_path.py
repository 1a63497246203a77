"""Chooses a GPU's attention and operations: flashinfer's kernels if possible, else torch's."""

import logging
from importlib import import_module

import torch

from pando_worker.attention.backend import AttentionBackend, HeadTurner
from pando_worker.attention.device_pages import PageLister, TableSize, list_pages
from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.attention.flashinfer.fp8_queries import QueryQuantizer, quantized_queries
from pando_worker.attention.flashinfer.kernel_choice import read_table
from pando_worker.attention.flashinfer.kind import AttentionKind, Formats
from pando_worker.attention.flashinfer.library import FlashinferUnavailable
from pando_worker.attention.kv_pool import KVStorer
from pando_worker.cuda.nucleus import RadixNucleus
from pando_worker.cuda.ops import (
    CudaOps,
    ExpertLinear,
    choose_add_lora,
    choose_expert_linear,
    choose_fused_experts,
)
from pando_worker.cuda.prebuilt import AttentionShape, read_prebuilt
from pando_worker.cuda.sum_norm import choose_sum_norm
from pando_worker.cuda.toolchain import missing_for_flashinfer, missing_for_triton
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.mixture import FusedExperts
from pando_worker.models.ops import SumNorm
from pando_worker.models.parallel import ParallelGroup
from pando_worker.runner.loading import LoadedModel
from pando_worker.runner.sampling.ops import BY_TORCH, SamplingOps
from pando_worker.settings import WorkerSettings

log = logging.getLogger("pando.worker.cuda")


def choose_attention(
    settings: WorkerSettings, loaded: LoadedModel, plain: AttentionBackend, group: ParallelGroup
) -> AttentionBackend:
    """Returns the backend to use, and sets the model's operations to match it. All ranks call it.

    Args:
        plain: torch's backend

    Raises:
        UnsupportedModel: flashinfer is required, but is not installed or cannot run this model.
    """
    if settings.attention_backend == "torch":
        return plain
    pages = -(-loaded.context_length // settings.page_size)
    table = TableSize(settings.max_running_requests, pages)
    try:
        _check_toolchain(settings, loaded)
        attention = FlashinferAttention(
            loaded.kv_pool,
            settings.page_size,
            loaded.dtype,
            most_tokens(settings, loaded),
            table=table,
            kernels=read_table(loaded.device),
            lister=_page_lister(),
            storer=_kv_storer(),
            turner=_head_turner(),
            quantizer=_query_quantizer(),
            fixed_rows=min(settings.cuda_graph_max_batch, settings.max_running_requests),
            images_are_whole=loaded.whole_image_tokens > 0,
        )
        adding = None if loaded.lora is None else choose_add_lora()
        loaded.ops.use(
            CudaOps(
                _expert_linear(loaded),
                add_lora=adding,
                fused_experts=_fused_experts(loaded),
                # Made once: its memory is that of all ranks, which stays.
                sum_norm=loaded.ops.sum_norm or _sum_norm(settings, loaded, group),
            )
        )
    except FlashinferUnavailable as reason:
        if settings.attention_backend == "flashinfer":
            raise UnsupportedModel(f"attention_backend is 'flashinfer', but {reason}") from reason
        log.warning("CUDA path: torch, since flashinfer cannot be used: %s", reason)
        return plain
    log.info(
        "CUDA path: flashinfer, %s",
        "which compiles its kernels at the first start: minutes"
        if missing_for_flashinfer() is None
        else "with the kernels that this image has compiled",
    )
    return attention


def choose_sampling_ops(attention: AttentionBackend) -> SamplingOps:
    """The sampler's operations: with flashinfer's attention one kernel of our own for everything,
    or without a compiler for it flashinfer's search for top-p."""
    if not isinstance(attention, FlashinferAttention):
        return BY_TORCH
    if missing_for_triton():
        return SamplingOps(nucleus=RadixNucleus())
    return SamplingOps(draw=import_module("pando_worker.cuda.sampling").draw_tokens)


def most_tokens(settings: WorkerSettings, loaded: LoadedModel) -> int:
    """The largest number of tokens in a step."""
    longest = max(settings.chunked_prefill_size, loaded.whole_image_tokens)
    return longest + settings.max_running_requests


def _check_toolchain(settings: WorkerSettings, loaded: LoadedModel) -> None:
    """
    Raises:
        FlashinferUnavailable: something is missing that compiles the kernels, and the image has
            none of this model's.
    """
    uses_triton = _has_experts(loaded) or loaded.lora is not None
    if reason := missing_for_flashinfer():
        prebuilt, uses_triton = read_prebuilt(), True  # for what is not compiled: sampling
        if prebuilt is None:
            raise FlashinferUnavailable(reason)
        if lacking := prebuilt.lacks(_shapes(settings, loaded), _capability(loaded)):
            raise FlashinferUnavailable(f"of its kernels, none is compiled for {lacking}; {reason}")
    if uses_triton and (reason := missing_for_triton()):
        raise FlashinferUnavailable(f"the kernels beside it cannot be compiled: {reason}")


def _shapes(settings: WorkerSettings, loaded: LoadedModel) -> list[AttentionShape]:
    """The model's shapes of attention, each once."""
    pool = loaded.kv_pool
    formats = Formats(loaded.dtype, pool.k[0].dtype, settings.page_size)
    return list(
        dict.fromkeys(AttentionShape.of(AttentionKind.of(layer), formats) for layer in pool.layers)
    )


def _expert_linear(loaded: LoadedModel) -> ExpertLinear | None:
    """For a model with experts."""
    if not _has_experts(loaded):
        return None
    return choose_expert_linear(_capability(loaded), loaded.dtype)


def _fused_experts(loaded: LoadedModel) -> FusedExperts | None:
    if not _has_experts(loaded):
        return None
    return choose_fused_experts(_capability(loaded), loaded.dtype)


def _sum_norm(
    settings: WorkerSettings, loaded: LoadedModel, group: ParallelGroup
) -> SumNorm | None:
    """For a model whose norms sum over ranks."""
    model = loaded.model
    if not isinstance(model, CausalLM) or not model.model.norm.sums:
        return None
    tokens = most_tokens(settings, loaded)
    return choose_sum_norm(group, _capability(loaded), model.hidden_size, loaded.dtype, tokens)


def _page_lister() -> PageLister:
    if missing_for_triton():
        return list_pages
    lister: PageLister = import_module("pando_worker.cuda.page_lists").list_pages
    return lister


def _head_turner() -> HeadTurner | None:
    if missing_for_triton():
        return None
    turner: HeadTurner = import_module("pando_worker.cuda.turn_heads").turn_heads
    return turner


def _kv_storer() -> KVStorer | None:
    if missing_for_triton():
        return None
    storer: KVStorer = import_module("pando_worker.cuda.kv_store").store_kv
    return storer


def _query_quantizer() -> QueryQuantizer:
    if missing_for_triton():
        return quantized_queries
    quantizer: QueryQuantizer = import_module("pando_worker.cuda.fp8_quantize").quantize_queries
    return quantizer


def _has_experts(loaded: LoadedModel) -> bool:
    return any(isinstance(module, MixtureOfExperts) for module in loaded.model.modules())


def _capability(loaded: LoadedModel) -> tuple[int, int]:
    return torch.cuda.get_device_capability(loaded.device)
