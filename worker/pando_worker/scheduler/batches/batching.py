"""Builds the `ForwardBatch` of one step from its requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pando_worker.batch import (
    AdapterRows,
    AlignedRows,
    ChosenTokens,
    ForwardBatch,
    Int64,
    PooledRows,
    ProbedTokens,
    PromptScores,
)
from pando_worker.memory.req_pool import ReqToTokenPool
from pando_worker.memory.window_pages import WindowPages
from pando_worker.scheduler.batches.changed_pages import ChangedPages
from pando_worker.scheduler.batches.context_cost import attended
from pando_worker.scheduler.batches.decodes import Decodes
from pando_worker.scheduler.batches.page_table import PageTables
from pando_worker.scheduler.batches.pooling import Pooled, pooled_rows, pooled_tokens
from pando_worker.scheduler.batches.positions import positions_of
from pando_worker.scheduler.batches.sampling import sampling_of
from pando_worker.scheduler.batches.verification import Verification, chosen_tokens
from pando_worker.scheduler.req import Req


@dataclass(frozen=True, slots=True)
class Row:
    """A request's part in a step: its next `extend_len` tokens, from position `start` on."""

    req: Req
    start: int
    extend_len: int
    is_last: bool  # this step runs all of its remaining tokens
    # Prompt positions whose log-probabilities it yields, each from the logits of the one before.
    scored: range
    probes: bool = False  # it runs the token behind which its request probes others

    @property
    def end(self) -> int:
        return self.start + self.extend_len

    @property
    def context(self) -> int:
        """The sum of the context lengths that its tokens attend to."""
        return attended(self.start, self.extend_len)

    @property
    def samples(self) -> bool:
        """Whether it yields its request's next token."""
        return self.is_last and not self.req.makes_no_token

    @property
    def aligned(self) -> range:
        """Its tokens that are aligned with its request's source, in the prompt."""
        wanted = self.req.alignment
        return range(0) if wanted is None else range(max(self.start, wanted.first), self.end)

    @property
    def chosen(self) -> range:
        """Its tokens behind which the model's choices verify its request's output."""
        first = self.req.verified_from
        return range(0) if first is None else range(max(self.start, first - 1), self.end)

    @property
    def pooled(self) -> range:
        """Its tokens whose states are pooled, in the prompt."""
        if self.req.pooling is None:
            return range(0)
        return pooled_tokens(self.req.pooling, self.start, self.end, is_last=self.is_last)


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of a step, in the order of its batch."""

    decodes: Decodes | None  # all of them, one token each; None if they do not run
    rows: Sequence[Row]

    @property
    def num_decodes(self) -> int:
        return 0 if self.decodes is None else len(self.decodes)

    def __len__(self) -> int:
        return self.num_decodes + len(self.rows)


class BatchBuilder(Protocol):
    """Makes the runner's batch from a step's rows, whose requests have pages for their tokens."""

    def build(self, step: StepRows) -> ForwardBatch: ...


def next_row(req: Req, count: int) -> Row:
    start = req.cached_len
    return Row(
        req,
        start,
        count,
        is_last=count == req.extend_len,
        scored=range(max(start + 1, req.first_score), min(start + count + 1, req.prompt_len)),
        probes=req.probe is not None
        and req.num_output == 0
        and start <= req.probe.position < start + count,
    )


class Batches:
    """Makes batches of arrays."""

    def __init__(
        self, pool: ReqToTokenPool, windows: WindowPages | None, changes: ChangedPages | None = None
    ) -> None:
        """
        Args:
            changes: for a runner that keeps page tables of its own
        """
        self._pool = pool
        self._windows = windows
        self._tables = PageTables(pool, windows)
        self._changes = changes

    def build(self, step: StepRows) -> ForwardBatch:
        page_size, rows, windows = self._pool.page_size, step.rows, self._windows
        extend_lens = np.ones(len(step), dtype=np.int32)
        extend_lens[step.num_decodes :] = [row.extend_len for row in rows]
        seq_lens = np.array([row.end for row in rows], dtype=np.int64)
        req_rows = np.array([row.req.row for row in rows], dtype=np.int64)
        if step.decodes:
            seq_lens = np.concatenate((step.decodes.num_tokens, seq_lens))
            req_rows = np.concatenate((step.decodes.row, req_rows))
        firsts = _window_firsts(step) if windows else None
        counts = -(-seq_lens // page_size)
        table, window_table = self._tables.update(req_rows, counts, firsts)

        # Token t of the batch belongs to row_of[t]; its place follows the row's cached tokens.
        ends = np.cumsum(extend_lens)
        row_of = np.repeat(np.arange(len(step)), extend_lens)
        places = np.arange(len(row_of)) - (ends - seq_lens)[row_of]
        pages = table[row_of, places // page_size]

        input_ids = np.empty(len(row_of), dtype=np.int64)
        if step.decodes:
            input_ids[: step.num_decodes] = step.decodes.input_ids
        starts = (ends - extend_lens)[step.num_decodes :].tolist()
        for row, first in zip(rows, starts, strict=True):
            if row.extend_len == 1:
                input_ids[first] = row.req.next_token
            else:
                input_ids[first : first + row.extend_len] = row.req.pending(row.extend_len)
        sampling = [(step.num_decodes + i, row.req) for i, row in enumerate(rows) if row.samples]
        sample_rows = np.arange(step.num_decodes + len(sampling))
        sample_rows[step.num_decodes :] = [index for index, _ in sampling]
        return ForwardBatch(
            input_ids=input_ids,
            positions=_positions(step, places, starts),
            out_slots=_slots(pages, places, page_size),
            extend_lens=extend_lens,
            seq_lens=seq_lens.astype(np.int32),
            page_table=table,
            page_size=page_size,
            req_rows=req_rows,
            sample_rows=sample_rows,
            sampling=sampling_of(step.decodes, [req for _, req in sampling], input_ids),
            scores=_scores(rows, starts),
            probed=_probed(rows, starts),
            kinds=_kinds(rows, starts, len(input_ids)),
            pooled=_pooled(rows, starts, step.num_decodes),
            aligned=_aligned(rows, starts, step.num_decodes),
            chosen=_chosen(rows, starts),
            adapters=_adapters(step),
            window_table=window_table,
            window_slots=_slots(windows.window_of[pages], places, page_size) if windows else None,
            page_changes=self._changes.update(req_rows, counts) if self._changes else None,
        )


def _adapters(step: StepRows) -> AdapterRows | None:
    of_decodes = step.decodes.slots if step.decodes else None
    if of_decodes is None and all(row.req.slot < 0 for row in step.rows):
        return None
    slots = np.full(len(step), -1, dtype=np.int32)
    if of_decodes is not None:
        slots[: step.num_decodes] = of_decodes
    slots[step.num_decodes :] = [row.req.slot for row in step.rows]
    return AdapterRows(slots)


def _window_firsts(step: StepRows) -> Int64:
    """The first page of each row that the step attends to through a window."""
    firsts = np.array([row.req.window_first for row in step.rows], dtype=np.int64)
    return np.concatenate((step.decodes.window_first, firsts)) if step.decodes else firsts


def _slots(pages: np.ndarray, places: Int64, page_size: int) -> Int64:
    slots: Int64 = pages.astype(np.int64) * page_size + places % page_size
    return slots


def _positions(step: StepRows, places: Int64, starts: Sequence[int]) -> Int64:
    """Rotary positions, as in `ForwardBatch`.

    Args:
        places: of the tokens in their sequences, [num_tokens]
        starts: the first token of each of `step.rows` in the batch
    """
    seeing = [(row, at) for row, at in zip(step.rows, starts, strict=True) if row.req.images]
    shift = step.decodes.shift if step.decodes else None
    if not seeing and shift is None:
        return places  # nearly every step
    positions = places.copy()
    if shift is not None:
        positions[: len(shift)] += shift
    if not seeing:
        return positions
    positions = np.tile(positions, (3, 1))
    for row, at in seeing:
        of_row = positions_of(row.req.images, row.start, row.end)
        positions[:, at : at + row.extend_len] = of_row
    return positions if (positions != positions[0]).any() else positions[0]


def _scores(rows: Sequence[Row], starts: Sequence[int]) -> PromptScores | None:
    after: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    top = 0
    for row, first in zip(rows, starts, strict=True):
        if row.scored and row.req.logprobs:
            positions = np.arange(row.scored.start, row.scored.stop)
            after.append(positions - 1 - row.start + first)
            targets.append(row.req.vocabulary_ids(row.scored.stop)[positions])
            top = max(top, row.req.logprobs.top)
    if not after:
        return None
    return PromptScores(
        after=np.concatenate(after).astype(np.int64),
        targets=np.concatenate(targets).astype(np.int64),
        top_logprobs=top,
    )


def _probed(rows: Sequence[Row], starts: Sequence[int]) -> ProbedTokens | None:
    after: list[int] = []
    targets: list[tuple[int, ...]] = []
    for row, first in zip(rows, starts, strict=True):
        if row.probes and (probe := row.req.probe):
            after.append(probe.position - row.start + first)
            targets.append(probe.token_ids)
    if not after:
        return None
    return ProbedTokens(
        after=np.array(after, dtype=np.int64),
        which=np.repeat(np.arange(len(after)), [len(ids) for ids in targets]),
        targets=np.concatenate([np.array(ids, dtype=np.int64) for ids in targets]),
    )


def _aligned(rows: Sequence[Row], starts: Sequence[int], first: int) -> AlignedRows | None:
    """
    Args:
        first: the index of rows[0] in the batch
    """
    found = [
        (first + index, start + row.aligned.start - row.start, start + row.extend_len, wanted)
        for index, (row, start) in enumerate(zip(rows, starts, strict=True))
        if row.aligned and (wanted := row.req.alignment)
    ]
    if not found:
        return None
    return AlignedRows(
        rows=np.array([index for index, *_ in found], dtype=np.int64),
        first=np.array([begin for _, begin, *_ in found], dtype=np.int64),
        last=np.array([end for *_, end, _ in found], dtype=np.int64),
        positions=np.array([wanted.positions for *_, wanted in found], dtype=np.int64),
    )


def _chosen(rows: Sequence[Row], starts: Sequence[int]) -> ChosenTokens | None:
    return chosen_tokens(
        [
            Verification(row.req, chosen, start + chosen.start - row.start)
            for row, start in zip(rows, starts, strict=True)
            if (chosen := row.chosen)
        ]
    )


def _kinds(rows: Sequence[Row], starts: Sequence[int], num_tokens: int) -> Int64 | None:
    pairs = [(row, at) for row, at in zip(rows, starts, strict=True) if row.req.second]
    if not pairs:
        return None
    kinds = np.zeros(num_tokens, dtype=np.int64)
    for row, at in pairs:
        kinds[at + max(0, row.req.second - row.start) : at + row.extend_len] = 1
    return kinds


def _pooled(rows: Sequence[Row], starts: Sequence[int], first: int) -> PooledRows | None:
    """
    Args:
        first: the index of rows[0] in the batch
    """
    return pooled_rows(
        [
            Pooled(first + index, start - row.start, row.req.pooling, tokens, row.req.prompt_len)
            for index, (row, start) in enumerate(zip(rows, starts, strict=True))
            if (tokens := row.pooled) and row.req.pooling
        ]
    )
