"""`PoolPlan`: the size of the KV pool beside a model's weights, known before these are read."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from pando_worker.attention.backend import AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool, kv_cell_bytes, windowed_layers
from pando_worker.cuda.device import memory_for_model
from pando_worker.models.parallel import ParallelGroup
from pando_worker.runner.kv.kv_budget import KVBudget, WindowShare
from pando_worker.runner.sampling.histories import most_bytes
from pando_worker.settings import WorkerSettings
from pando_worker.settings.memory import KVCacheDType

log = logging.getLogger("pando.worker.runner")

_DTYPES = {
    KVCacheDType.BFLOAT16: torch.bfloat16,
    KVCacheDType.FP8_E4M3: torch.float8_e4m3fn,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    layers: Sequence[AttentionLayer]
    dtype: torch.dtype
    budget: KVBudget
    share: WindowShare | None  # what window layers would have as their own pool
    capacity_tokens: int  # a multiple of the page size
    window_layers: frozenset[int]  # indices of the layers whose window is shorter than the context
    window_tokens: int  # of their own pool; 0 if they share the others'

    @property
    def windowed(self) -> frozenset[int]:
        """Indices of the layers with their own pool."""
        return self.window_layers if self.window_tokens else frozenset()

    def for_trial(self, tokens: int) -> "PoolPlan":
        """A pool for steps that belong to no request, of at most so many tokens."""
        size = self.budget.page_size
        tokens = -(-tokens // size) * size
        return replace(
            self,
            capacity_tokens=min(self.capacity_tokens, tokens),
            window_tokens=min(self.window_tokens, tokens),
        )

    def beside(self, step_bytes: int, group: ParallelGroup) -> "PoolPlan":
        """The pool in the memory that the largest steps leave, equally large on every rank.

        Args:
            step_bytes: what they hold at once, beside weights and pool

        Raises:
            DoesNotFit: not even one page does.
        """
        budget = replace(self.budget, step_bytes=step_bytes)
        tokens, window_tokens = _capacities(budget, self.share, group)
        return replace(self, budget=budget, capacity_tokens=tokens, window_tokens=window_tokens)

    def make_pool(self, device: torch.device) -> TokenToKVPool:
        pool = TokenToKVPool(
            self.layers,
            self.capacity_tokens,
            self.dtype,
            device,
            windowed=self.windowed,
            window_slots=self.window_tokens,
            spare_slots=self.budget.spare_pages * self.budget.page_size,
        )
        if self.windowed:
            message = "%d layers with windows up to %d hold %d tokens and release older ones"
            log.info(message, len(self.windowed), pool.window, self.window_tokens)
        return pool


def plan_pool(
    settings: WorkerSettings,
    layers: Sequence[AttentionLayer],
    *,
    dtype: torch.dtype,
    weight_bytes: int,
    context_length: int,
    chunk_tokens: int,
    device: torch.device,
    group: ParallelGroup,
) -> PoolPlan:
    """This rank's pool, equally large on every rank.

    Args:
        dtype: of the activations, and of keys and values unless set otherwise.
        chunk_tokens: the most that a request runs in one step

    Raises:
        DoesNotFit: not even one page does.
    """
    dtype = _DTYPES.get(settings.kv_cache_dtype, dtype)
    gib, on_gpu = settings.memory_gib, device.type == "cuda"
    budget = KVBudget(
        memory_bytes=memory_for_model(
            device, None if gib is None else int(gib * 2**30), group.size
        ),
        weight_bytes=weight_bytes,
        mem_fraction_static=settings.mem_fraction_static,
        cell_bytes=kv_cell_bytes(layers, dtype),
        page_size=settings.page_size,
        max_total_tokens=settings.max_total_tokens,
        # A page of each pool that no request owns, for the padding rows of CUDA graphs.
        spare_pages=1 if on_gpu else 0,
        # A CPU's memory is taken only where something is written, a few bytes for each KV page.
        history_bytes=most_bytes(settings.max_running_requests, context_length) if on_gpu else 0,
    )
    windowed = windowed_layers(layers, context_length)
    share = _window_share(
        settings, [layers[i] for i in windowed], context_length, chunk_tokens, dtype
    )
    tokens, window_tokens = _capacities(budget, share, group)
    return PoolPlan(
        layers=layers,
        dtype=dtype,
        budget=budget,
        share=share,
        capacity_tokens=tokens,
        window_layers=windowed,
        window_tokens=window_tokens,
    )


def _window_share(
    settings: WorkerSettings,
    windowed: Sequence[AttentionLayer],
    context_length: int,
    chunk_tokens: int,
    dtype: torch.dtype,
) -> WindowShare | None:
    """The window layers' part of the pool; None if all layers share one pool."""
    if not windowed or settings.window_ratio == 1:
        return None
    return WindowShare(
        cell_bytes=kv_cell_bytes(windowed, dtype),
        ratio=settings.window_ratio,
        window=max(layer.window or 0 for layer in windowed),
        chunk_tokens=chunk_tokens,
        context_length=context_length,
    )


def _capacities(
    budget: KVBudget, share: WindowShare | None, group: ParallelGroup
) -> tuple[int, int]:
    """Tokens of the pool and of the window layers' own pool (0 without one), agreed by all ranks.

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
