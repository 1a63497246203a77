"""`choose_scales`: the scales of keys and values in a pool of fp8.

Without scales, values below 2^-6 lose bits, and numbers above 448 are clamped. The checkpoint may
have some; other layers get theirs from what the model makes of random tokens. Those are powers of
two, so that scaling rounds nothing. Numbers in fp8 have as many bits over 15 powers of two, so room
for larger ones than were seen costs nothing but the smallest.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend, AttentionLayer, KVScales
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.batch import ForwardBatch
from pando_worker.models.loading.kv_scales import read_kv_scales
from pando_worker.runner.loading import LoadedModel
from pando_worker.runner.trial import trial_batch

log = logging.getLogger("pando.worker.runner")

TOKENS = 1024  # at most; the largest key hardly grows with more
ROOM = 8  # times the largest number seen
_LARGEST = torch.finfo(torch.float8_e4m3fn).max


class _Ranges:
    """An `AttentionBackend` that notes the largest key and value of each layer.

    Attributes:
        largest: by layer, float32 [2]
    """

    def __init__(self, inner: AttentionBackend) -> None:
        self._inner = inner
        self.largest: dict[int, Tensor] = {}

    def plan(self, batch: ForwardBatch) -> None:
        self._inner.plan(batch)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        self.largest[layer.index] = torch.stack([x.abs().amax().float() for x in (k, v)])
        return self._inner.forward(q, k, v, layer)


def choose_scales(
    loaded: LoadedModel,
    page_size: int,
    chunk_tokens: int,
    run: Callable[[ForwardBatch, AttentionBackend], object],
) -> None:
    """Give the pool its scales, before requests use it. All ranks call this at once.

    Args:
        chunk_tokens: most new tokens of a request in a step
        run: runs a step with this attention; leaves garbage in the pool's first pages

    Raises:
        BrokenCheckpoint: its scales cannot be read.
    """
    pool = loaded.kv_pool
    given = read_kv_scales(loaded.config.path.parent) if loaded.from_files else {}
    scales = [given.get(layer.index) for layer in pool.layers]
    count = 0
    if None in scales:
        rooms = (chunk_tokens, loaded.context_length, loaded.capacity_tokens, pool.window_slots)
        count = min(TOKENS, *(room for room in rooms if room))
        seen = _ranges(loaded, page_size, count, run)
        scales = [own or seen[index] for index, own in enumerate(scales)]
    pool.scales = [own for own in scales if own is not None]
    message = "keys and values in fp8: %d layers have the checkpoint's scales%s"
    others = f", {len(pool.layers) - len(given)} those of {count} random tokens" if count else ""
    log.info(message, len(pool.layers) if not count else len(given), others)


def _ranges(
    loaded: LoadedModel,
    page_size: int,
    count: int,
    run: Callable[[ForwardBatch, AttentionBackend], object],
) -> list[KVScales]:
    """Of each layer, for what random tokens become."""
    pool = loaded.kv_pool
    batch = trial_batch(cached=0, extend=count, page_size=page_size, windows=bool(pool.windowed))
    ids = np.random.default_rng(0).integers(0, loaded.config.vocab_size, count)
    noted = _Ranges(TorchAttention(pool, loaded.dtype))
    run(replace(batch, input_ids=ids), noted)
    largest = torch.stack([noted.largest[layer.index] for layer in pool.layers]).tolist()
    return [KVScales(scale_for(k), scale_for(v)) for k, v in largest]


def scale_for(largest: float) -> float:
    """A power of two, with which e4m3 holds numbers up to `ROOM` times the largest that was seen; 1
    if that is no number to go by."""
    if not math.isfinite(largest) or largest == 0:
        return 1.0
    return float(2.0 ** math.ceil(math.log2(largest * ROOM / _LARGEST)))
