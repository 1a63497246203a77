"""`Aligner`: what a speech model's alignment heads attend to while its decoder runs an output.

The layers with such heads keep their queries of the step; afterwards these meet the keys of the
sources again, which costs nothing in steps without aligned rows.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.batch import AlignedRows, ForwardBatch
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.layers.attention.source import CrossAttention
from pando_worker.models.layers.seq2seq import EncoderDecoder
from pando_worker.models.parallel import ParallelGroup
from pando_worker.tensors.transfer import to_device

Heads = Sequence[tuple[int, int]]
"""Pairs of a decoder layer and one of its heads."""


def alignment_heads(model_dir: Path, layers: int, heads: int) -> Heads:
    """Those of `generation_config.json`, else all heads of the upper half of the layers, as in
    OpenAI's Whisper.

    Raises:
        BrokenCheckpoint: they are not heads of the decoder.
    """
    path = model_dir / "generation_config.json"
    known = json.loads(path.read_bytes()).get("alignment_heads") if path.is_file() else None
    if known is None:
        return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]
    pairs = [(layer, head) for layer, head in known]
    if not all(0 <= layer < layers and 0 <= head < heads for layer, head in pairs):
        raise BrokenCheckpoint(f"{path} has alignment_heads that the decoder lacks: {pairs}")
    return pairs


class Aligner:
    def __init__(
        self, model: EncoderDecoder, pool: TokenToKVPool, heads: Heads, group: ParallelGroup
    ) -> None:
        self._layers = [each for each in model.modules() if isinstance(each, CrossAttention)]
        self._pool = pool
        self._heads = heads
        self._group = group

    def begin(self) -> None:
        """Before the model runs a step with aligned rows."""
        for index in {layer for layer, _ in self._heads}:
            self._layers[index].watched = []

    @torch.inference_mode()
    def end(self, batch: ForwardBatch, rows: AlignedRows) -> list[Tensor]:
        """After it: the weights of each of these rows, float32 [heads, tokens, positions]."""
        queries = {}
        for index, layer in enumerate(self._layers):
            if layer.watched:
                (queries[index],) = layer.watched
            layer.watched = None
        return [self._weights(batch, rows, i, queries) for i in range(len(rows.rows))]

    def _weights(
        self, batch: ForwardBatch, rows: AlignedRows, at: int, queries: dict[int, Tensor]
    ) -> Tensor:
        sources, row = batch.sources, rows.rows[at]
        assert sources is not None
        first, last, positions = rows.first[at], rows.last[at], int(rows.positions[at])
        length = np.arange(sources.lengths[row])
        pages = sources.page_table[row, length // batch.page_size].astype(np.int64)
        slots = to_device(
            pages * batch.page_size + length % batch.page_size, self._pool.k[0].device
        )
        found = []
        for index, head in self._heads:
            layer = self._layers[index].layer
            local = head - self._group.rank * layer.heads
            if 0 <= local < layer.heads:
                q = queries[index][first:last, local].float()
                keys = self._pool.k[index][slots, local].float() * self._pool.scales[index].k
                weights = (q @ keys.T * layer.scale).softmax(dim=-1)[:, :positions]
            else:
                weights = torch.zeros(int(last - first), positions, device=slots.device)
            found.append(weights)
        return self._group.all_reduce(torch.stack(found))
