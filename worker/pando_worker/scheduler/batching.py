"""From requests to arrays: builds the `ForwardBatch` of one step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pando_worker.memory.req_pool import ReqToTokenPool
from pando_worker.runner.batch import ForwardBatch, SamplingBatch
from pando_worker.scheduler.req import Req


@dataclass(frozen=True, slots=True)
class Row:
    """A request's part in a step: its next `extend_len` tokens."""

    req: Req
    extend_len: int

    @property
    def samples(self) -> bool:
        """Whether this step runs all it had left, and so yields its next token."""
        return self.extend_len == self.req.extend_len


def build_batch(rows: Sequence[Row], pool: ReqToTokenPool) -> ForwardBatch:
    """Lay the rows out one after the other; their requests must have pages for these tokens."""
    page_size = pool.page_size
    extend_lens = np.array([row.extend_len for row in rows], dtype=np.int32)
    cached_lens = np.array([row.req.cached_len for row in rows], dtype=np.int64)
    seq_lens = cached_lens + extend_lens
    table = pool.pages[[row.req.row for row in rows], : -(-int(seq_lens.max()) // page_size)]

    # Token t of the batch belongs to row_of[t]; positions count on from each row's cached length.
    row_of = np.repeat(np.arange(len(rows)), extend_lens)
    starts = np.cumsum(extend_lens) - extend_lens
    positions = np.arange(len(row_of)) - starts[row_of] + cached_lens[row_of]
    pages = table[row_of, positions // page_size].astype(np.int64)

    input_ids = np.concatenate([row.req.pending(row.extend_len) for row in rows])
    samples = [index for index, row in enumerate(rows) if row.samples]
    return ForwardBatch(
        input_ids=input_ids.astype(np.int64),
        positions=positions,
        out_slots=pages * page_size + positions % page_size,
        extend_lens=extend_lens,
        seq_lens=seq_lens.astype(np.int32),
        page_table=table,
        page_size=page_size,
        req_rows=np.array([row.req.row for row in rows], dtype=np.int64),
        sample_rows=np.array(samples, dtype=np.int64),
        sampling=_sampling([rows[index].req for index in samples]),
    )


def _sampling(reqs: Sequence[Req]) -> SamplingBatch:
    params = [req.sampling for req in reqs]
    return SamplingBatch(
        temperature=np.array([p.temperature for p in params], dtype=np.float32),
        top_k=np.array([p.top_k for p in params], dtype=np.int64),
        top_p=np.array([p.top_p for p in params], dtype=np.float32),
        min_p=np.array([p.min_p for p in params], dtype=np.float32),
        seed=np.array([p.seed for p in params], dtype=np.int64),
        step=np.array([len(req.output) for req in reqs], dtype=np.int64),
    )
