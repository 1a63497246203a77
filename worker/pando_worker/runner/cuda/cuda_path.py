"""Chooses a GPU's attention and operations: flashinfer's kernels if possible, else torch's."""

import logging

import torch

from pando_worker.attention.backend import AttentionBackend
from pando_worker.attention.flashinfer_backend import FlashinferAttention
from pando_worker.attention.flashinfer_calls import FlashinferUnavailable
from pando_worker.attention.flashinfer_graphs import FlashinferGraphs
from pando_worker.cuda.nucleus import RadixNucleus
from pando_worker.cuda.ops import CudaOps, ExpertLinear, choose_add_lora, choose_expert_linear
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts import MixtureOfExperts
from pando_worker.runner.cuda.cuda_graph import CudaCapture, CudaGraphRunner, graph_sizes
from pando_worker.runner.loading import LoadedModel
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.runner.sampling.sampler import BY_TORCH, Searches
from pando_worker.settings import WorkerSettings

log = logging.getLogger("pando.worker.cuda")


def choose_attention(
    settings: WorkerSettings, loaded: LoadedModel, plain: AttentionBackend
) -> AttentionBackend:
    """Returns the backend to use, and sets the model's operations to match it.

    Args:
        plain: torch's backend

    Raises:
        UnsupportedModel: flashinfer is required, but is not installed or cannot run this model.
    """
    if settings.attention_backend == "torch":
        return plain
    longest = max(settings.chunked_prefill_size, loaded.whole_image_tokens)
    most_tokens = longest + settings.max_running_requests
    try:
        attention = FlashinferAttention(
            loaded.kv_pool,
            settings.page_size,
            loaded.dtype,
            most_tokens,
            fixed_rows=min(settings.cuda_graph_max_batch, settings.max_running_requests),
            images_are_whole=loaded.whole_image_tokens > 0,
        )
        adding = None if loaded.lora is None else choose_add_lora()
        loaded.ops.use(CudaOps(_expert_linear(loaded), add_lora=adding))
    except FlashinferUnavailable as reason:
        if settings.attention_backend == "flashinfer":
            raise UnsupportedModel(f"attention_backend is 'flashinfer', but {reason}") from reason
        log.warning("CUDA path: torch, since flashinfer cannot be used: %s", reason)
        return plain
    log.info("CUDA path: flashinfer, which compiles its kernels at the first start: minutes")
    return attention


def choose_searches(attention: AttentionBackend) -> Searches:
    """The sampler's searches: with flashinfer's attention also its search for top-p."""
    if not isinstance(attention, FlashinferAttention):
        return BY_TORCH
    return Searches(nucleus=RadixNucleus())


def capture_graphs(
    settings: WorkerSettings,
    loaded: LoadedModel,
    attention: AttentionBackend,
    futures: FutureTokens,
) -> CudaGraphRunner | None:
    """CUDA graphs of decode steps; None if they are disabled or the model does not allow them."""
    sizes = graph_sizes(min(settings.cuda_graph_max_batch, settings.max_running_requests))
    if not sizes:
        return None
    if not isinstance(attention, FlashinferAttention):
        log.info("no CUDA graphs: torch's attention runs different kernels for each batch")
        return None
    if reason := _not_capturable(loaded):
        log.warning("no CUDA graphs: %s", reason)
        return None
    return CudaGraphRunner(
        loaded.model,
        FlashinferGraphs(attention, sizes[-1], loaded.context_length),
        futures,
        loaded.device,
        sizes=sizes,
        page_size=settings.page_size,
        padding_page=loaded.capacity_tokens // settings.page_size,
        window_padding_page=_window_padding_page(loaded, settings.page_size),
        capture=CudaCapture(),
        lora=loaded.lora,
    )


def _window_padding_page(loaded: LoadedModel, page_size: int) -> int | None:
    pool = loaded.kv_pool
    return pool.window_slots // page_size if pool.windowed else None


def _expert_linear(loaded: LoadedModel) -> ExpertLinear | None:
    """For a model with experts."""
    if not any(isinstance(module, MixtureOfExperts) for module in loaded.model.modules()):
        return None
    return choose_expert_linear(torch.cuda.get_device_capability(loaded.device), loaded.dtype)


def _not_capturable(loaded: LoadedModel) -> str | None:
    if not isinstance(loaded.model, CausalLM):
        return "a model that runs through transformers may wait for the device in its layers"
    return None
