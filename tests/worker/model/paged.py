"""Assigns pages to rows and builds batches of them, without a scheduler.

`Paged` runs them on a `TorchModelRunner`; `BareModel` on a model, its pool and the torch backend.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.batch import ForwardBatch, SamplingBatch
from pando_worker.models.config import ModelImpl, read_config
from pando_worker.models.loading.building import build_model, weight_bytes
from pando_worker.models.loading.loader import load_weights
from pando_worker.models.loading.schemes.scheme import Scheme
from pando_worker.models.ops import Ops
from pando_worker.models.parallel import ParallelGroup
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from pando_worker.settings.compute import DType

CPU = torch.device("cpu")


@dataclass(slots=True)
class Row:
    tokens: list[int]
    pages: list[int] = field(default_factory=list)
    cached: int = 0

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.cached


class Pages:
    """Allocates pages in random order, so that a row rarely has neighbouring pages."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self._page_size = page_size
        self._random = np.random.default_rng(0)
        self._num_pages = num_pages
        self._free = self._random.permutation(num_pages).tolist()

    def fork(self, row: Row, tokens: list[int], pages: int) -> Row:
        """A row of `tokens` that shares the cached first pages of another row."""
        return Row(tokens, row.pages[:pages], pages * self._page_size)

    def batch(self, rows: Sequence[Row], counts: Sequence[int]) -> ForwardBatch:
        """A batch of the rows' next `counts` tokens, which then count as cached."""
        positions = [np.arange(r.cached, r.cached + n) for r, n in zip(rows, counts, strict=True)]
        ids = [r.tokens[r.cached : r.cached + n] for r, n in zip(rows, counts, strict=True)]
        for row, count in zip(rows, counts, strict=True):
            row.cached += count
            while len(row.pages) * self._page_size < row.cached:
                row.pages.append(self._free.pop())
        width = max(len(row.pages) for row in rows)
        table = self._random.integers(0, self._num_pages, (len(rows), width))
        for index, row in enumerate(rows):
            table[index, : len(row.pages)] = row.pages
        slots = [
            table[index, where // self._page_size] * self._page_size + where % self._page_size
            for index, where in enumerate(positions)
        ]
        samples = [index for index, row in enumerate(rows) if row.pending == 0]
        return ForwardBatch(
            input_ids=np.concatenate(ids).astype(np.int64),
            positions=np.concatenate(positions).astype(np.int64),
            out_slots=np.concatenate(slots).astype(np.int64),
            extend_lens=np.array(counts, dtype=np.int32),
            seq_lens=np.array([row.cached for row in rows], dtype=np.int32),
            page_table=table.astype(np.int32),
            page_size=self._page_size,
            req_rows=np.arange(len(rows)),
            sample_rows=np.array(samples, dtype=np.int64),
            sampling=greedy(len(samples)),
        )


class BareModel:
    """A model, or one rank's share of it if there is a group, and its KV pool."""

    def __init__(
        self,
        model_dir: Path,
        page_size: int = 4,
        tokens: int = 4096,
        *,
        dtype: torch.dtype = torch.float32,
        group: ParallelGroup | None = None,
        context_length: int | None = None,
        impl: ModelImpl = "pando",
        scheme: Scheme | None = None,
        ops: Ops | None = None,
        expert_parallel: bool = False,
    ) -> None:
        config = read_config(model_dir, impl)
        self.model = build_model(
            config,
            dtype,
            CPU,
            group,
            context_length,
            ops,
            scheme,
            expert_parallel=expert_parallel,
        )
        self.planned_bytes = weight_bytes(self.model)
        load_weights(self.model, model_dir, CPU, scheme)
        self.dtype = dtype
        self.empty(page_size, tokens)

    def empty(self, page_size: int, tokens: int = 4096) -> None:
        """Replace the pool by an empty one."""
        self.pool = TokenToKVPool(self.model.attention_layers, tokens, self.dtype, CPU)
        for tensor in (*self.pool.k, *self.pool.v):
            tensor.fill_(torch.nan)  # leftovers must have no effect
        self._attention = TorchAttention(self.pool)
        self.pages = Pages(tokens // page_size, page_size)

    def run(self, rows: Sequence[Row], chunk: int = 1 << 30) -> Tensor:
        """Run at most `chunk` pending tokens of each row; logits after each of them."""
        return self.model.logits(self.hidden(rows, chunk))

    def hidden(self, rows: Sequence[Row], chunk: int = 1 << 30) -> Tensor:
        """Run at most `chunk` pending tokens of each row; their final hidden states."""
        batch = self.pages.batch(rows, [min(chunk, row.pending) for row in rows])
        self._attention.plan(batch)
        ids, positions = map(torch.from_numpy, (batch.input_ids, batch.positions))
        hidden: Tensor = self.model(ids, positions, self._attention)
        return hidden

    def greedy(self, prompts: Sequence[list[int]], count: int, chunk: int) -> list[list[int]]:
        """The best `count` tokens after each prompt. Rows join one at a time, so that most batches
        mix decodes with chunks of prefills."""
        rows = [Row(list(tokens)) for tokens in prompts]
        goals = [len(tokens) + count for tokens in prompts]
        step = 0
        while active := [
            r for r, g in zip(rows[: 1 + step // 3], goals, strict=False) if len(r.tokens) < g
        ]:
            before = [row.cached for row in active]
            best = self.run(active, chunk).argmax(-1).tolist()
            for row, cached in zip(active, before, strict=True):
                own, best = best[: row.cached - cached], best[row.cached - cached :]
                if row.pending == 0:
                    row.tokens.append(own[-1])
            step += 1
        return [row.tokens[-count:] for row in rows]


class Paged:
    def __init__(
        self,
        model: Path,
        page_size: int = 4,
        tokens: int = 4096,
        dtype: DType = DType.AUTO,
        **settings: Any,
    ) -> None:
        self.runner = TorchModelRunner(
            WorkerSettings(
                model=str(model),
                page_size=page_size,
                max_total_tokens=tokens,
                threads=1,
                dtype=dtype,
                **settings,
            )
        )
        self.pages = Pages(self.runner.capacity_tokens // page_size, page_size)

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """Run all pending tokens of all rows; logits [rows, vocab_size]."""
        return self.runner.logits(self.pages.batch(rows, [row.pending for row in rows]))

    def step(self, rows: Sequence[Row], chunk: int) -> list[int | None]:
        """Run at most `chunk` tokens of each row, and append the next token to completed rows."""
        batch = self.pages.batch(rows, [min(chunk, row.pending) for row in rows])
        launched = self.runner.launch(batch)
        launched.sample(None)
        tokens = launched.result().tokens.tolist()
        sampled = dict(zip(batch.sample_rows.tolist(), tokens, strict=True))
        for index, token in sampled.items():
            rows[index].tokens.append(token)
        return [sampled.get(index) for index in range(len(rows))]


def greedy(rows: int) -> SamplingBatch:
    return SamplingBatch(
        temperature=np.zeros(rows, dtype=np.float32),
        top_k=np.zeros(rows, dtype=np.int64),
        top_p=np.ones(rows, dtype=np.float32),
        min_p=np.zeros(rows, dtype=np.float32),
        seed=np.zeros(rows, dtype=np.int64),
        step=np.zeros(rows, dtype=np.int64),
    )


def assert_hits_change_no_distribution(model: BareModel, tokens: list[int]) -> None:
    """Log-probabilities with hits of several lengths and without agree up to rounding.

    Args:
        model: with an empty pool in pages of 4 tokens
        tokens: at least 45
    """
    first = Row(tokens)
    limit, divergence = (1e-4, 1e-8) if model.dtype == torch.float32 else (0.5, 0.01)
    cold = model.run([first]).double().log_softmax(-1)
    for pages in (1, 6, 11):
        hit = model.run([model.pages.fork(first, tokens, pages)]).double().log_softmax(-1)
        missed = cold[4 * pages :]
        assert float((hit - missed).abs().max()) < limit
        assert float((missed.exp() * (missed - hit)).sum(-1).max()) < divergence
