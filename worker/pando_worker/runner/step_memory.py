"""The largest steps that a scheduler may ask for, to measure the memory that steps take.

They are run before the KV pool is sized, on a pool that only holds a step's new tokens. Longer rows
list its pages again and again.
"""

from dataclasses import dataclass

import numpy as np

from pando_worker.batch import ForwardBatch, Int32, Int64, SamplingBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestSteps:
    rows: int  # most requests that run at once
    chunk_tokens: int  # most new tokens of a request in a step
    longest: int  # most tokens of a request
    capacity_tokens: int  # of the KV pool in service, at most
    page_size: int
    vocab_size: int

    @property
    def pool_tokens(self) -> int:
        """A pool of so many tokens is enough to run these steps."""
        return min(self.chunk_tokens, self.longest) + self.page_size

    @property
    def mask(self) -> Int32:
        """A mask of allowed tokens, for each of the rows."""
        return np.full((self.rows, -(-self.vocab_size // 32)), -1, dtype=np.int32)

    def batches(self, pages: int, window_pages: int) -> list[ForwardBatch]:
        """A chunk of the longest prompt with decodes beside it, and decodes only, as long as fits.
        All rows sample, with every limit and log-probabilities.

        Args:
            pages: of the pool
            window_pages: of the layers with their own pool; 0 without any
        """
        length = min(self.longest, max(self.page_size, self.capacity_tokens // self.rows))
        lengths = np.full(self.rows, length, dtype=np.int64)
        extends = np.ones(self.rows, dtype=np.int64)
        decodes = self._batch(lengths, extends, pages, window_pages)
        lengths[-1], extends[-1] = self.longest, min(self.chunk_tokens, self.longest)
        return [self._batch(lengths, extends, pages, window_pages), decodes]

    def _batch(self, lengths: Int64, extends: Int64, pages: int, window_pages: int) -> ForwardBatch:
        rows, size = len(lengths), self.page_size
        # Rows begin with different pages, so that they do not count as sharing a prefix.
        order = np.arange(-(-int(lengths.max()) // size)) + np.arange(rows)[:, None]
        table = (order % pages).astype(np.int32)
        row_of = np.repeat(np.arange(rows), extends)
        positions = np.concatenate(
            [np.arange(n - new, n) for n, new in zip(lengths, extends, strict=True)]
        )
        at = row_of, positions // size

        def slots(of: Int32) -> Int64:
            found: Int64 = of[at].astype(np.int64) * size + positions % size
            return found

        windows = (order % window_pages).astype(np.int32) if window_pages else None
        return ForwardBatch(
            input_ids=np.zeros(len(positions), dtype=np.int64),
            positions=positions.astype(np.int64),
            out_slots=slots(table),
            extend_lens=extends.astype(np.int32),
            seq_lens=lengths.astype(np.int32),
            page_table=table,
            page_size=size,
            req_rows=np.arange(rows, dtype=np.int64),
            sample_rows=np.arange(rows, dtype=np.int64),
            sampling=SamplingBatch(
                temperature=np.ones(rows, dtype=np.float32),
                top_k=np.full(rows, 50, dtype=np.int64),
                top_p=np.full(rows, 0.9, dtype=np.float32),
                min_p=np.full(rows, 0.01, dtype=np.float32),
                seed=np.zeros(rows, dtype=np.int64),
                step=np.zeros(rows, dtype=np.int64),
                top_logprobs=20,
            ),
            window_table=windows,
            window_slots=None if windows is None else slots(windows),
        )
