"""Drives a `TorchModelRunner` without a scheduler: lays rows out in pages and builds batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor

from pando_worker.runner.batch import ForwardBatch, SamplingBatch
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import DType, WorkerSettings


@dataclass(slots=True)
class Row:
    tokens: list[int]
    pages: list[int] = field(default_factory=list)
    cached: int = 0

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.cached


class Paged:
    """A runner and its pages, handed out in random order so that no two neighbours are a row's."""

    def __init__(
        self, model: Path, page_size: int = 4, tokens: int = 4096, dtype: DType = DType.AUTO
    ) -> None:
        self.runner = TorchModelRunner(
            WorkerSettings(
                model=str(model),
                page_size=page_size,
                max_total_tokens=tokens,
                threads=1,
                dtype=dtype,
            )
        )
        self.page_size = page_size
        self._random = np.random.default_rng(0)
        self._num_pages = self.runner.capacity_tokens // page_size
        self._free = self._random.permutation(self._num_pages).tolist()

    def fork(self, row: Row, tokens: list[int], pages: int) -> Row:
        """A row of `tokens` that shares the first pages of another one, already cached there."""
        return Row(tokens, row.pages[:pages], pages * self.page_size)

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """Run all that is pending of all rows, [rows, vocab_size]."""
        return self.runner.logits(self._batch(rows, [row.pending for row in rows]))

    def step(self, rows: Sequence[Row], chunk: int) -> list[int | None]:
        """Run at most `chunk` tokens of each row, and append the next to those that are through."""
        batch = self._batch(rows, [min(chunk, row.pending) for row in rows])
        launched = self.runner.launch(batch)
        launched.sample(None)
        tokens = launched.result().tokens.tolist()
        sampled = dict(zip(batch.sample_rows.tolist(), tokens, strict=True))
        for index, token in sampled.items():
            rows[index].tokens.append(token)
        return [sampled.get(index) for index in range(len(rows))]

    def _batch(self, rows: Sequence[Row], counts: Sequence[int]) -> ForwardBatch:
        positions = [np.arange(r.cached, r.cached + n) for r, n in zip(rows, counts, strict=True)]
        ids = [r.tokens[r.cached : r.cached + n] for r, n in zip(rows, counts, strict=True)]
        for row, count in zip(rows, counts, strict=True):
            row.cached += count
            while len(row.pages) * self.page_size < row.cached:
                row.pages.append(self._free.pop())
        width = max(len(row.pages) for row in rows)
        table = self._random.integers(0, self._num_pages, (len(rows), width))
        for index, row in enumerate(rows):
            table[index, : len(row.pages)] = row.pages
        slots = [
            table[index, where // self.page_size] * self.page_size + where % self.page_size
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
            page_size=self.page_size,
            req_rows=np.arange(len(rows)),
            sample_rows=np.array(samples, dtype=np.int64),
            sampling=greedy(len(samples)),
        )


def greedy(rows: int) -> SamplingBatch:
    return SamplingBatch(
        temperature=np.zeros(rows, dtype=np.float32),
        top_k=np.zeros(rows, dtype=np.int64),
        top_p=np.ones(rows, dtype=np.float32),
        min_p=np.zeros(rows, dtype=np.float32),
        seed=np.zeros(rows, dtype=np.int64),
        step=np.zeros(rows, dtype=np.int64),
    )
