"""A model whose next token is a hash of all tokens before it, read through the KV pool.

Each slot holds the hash of the prefix that ends there, computed from the slot before it as the page
table names it. So a wrong page, a stale slot or a lost token changes every token that follows, and
what a request must produce can be computed without any pool: `expected_tokens`.
"""

from collections.abc import Sequence

import numpy as np

from pando_worker.runner.batch import ForwardBatch, Int32, Int64, StepResult

VOCAB = 97


def _mix(prefix: int, token: int) -> int:
    return (prefix * 1_000_003 + token + 1) % 2_147_483_647


def expected_tokens(prompt: Sequence[int], count: int) -> list[int]:
    """The `count` tokens that follow `prompt`."""
    state = 7
    for token in prompt:
        state = _mix(state, token)
    produced: list[int] = []
    for _ in range(count):
        produced.append(state % VOCAB)
        state = _mix(state, produced[-1])
    return produced


class HashRunner:
    """Answers with -1, not finite, for a row that runs a token of `broken`."""

    def __init__(self, num_slots: int, broken: frozenset[int] = frozenset()) -> None:
        self.state = np.full(num_slots, -1, dtype=np.int64)
        self.broken = broken

    def launch(self, batch: ForwardBatch) -> "_HashStep":
        return _HashStep(self._run(batch))

    def _run(self, batch: ForwardBatch) -> Int64:
        sampled = set(batch.sample_rows.tolist())
        produced: list[int] = []
        start = 0
        for row, (extend, length) in enumerate(
            zip(batch.extend_lens.tolist(), batch.seq_lens.tolist(), strict=True)
        ):
            ids = batch.input_ids[start : start + extend].tolist()
            positions = batch.positions[start : start + extend].tolist()
            assert positions == list(range(length - extend, length))
            table = batch.page_table[row]
            state = (
                7
                if length == extend
                else int(self.state[self._slot(batch, table, positions[0] - 1)])
            )
            for offset, (token, position) in enumerate(zip(ids, positions, strict=True)):
                slot = self._slot(batch, table, position)
                assert slot == batch.out_slots[start + offset]
                state = _mix(state, token)
                self.state[slot] = state
            if row in sampled:
                produced.append(-1 if self.broken & set(ids) else state % VOCAB)
            start += extend
        return np.array(produced, dtype=np.int64)

    @staticmethod
    def _slot(batch: ForwardBatch, table: np.ndarray, position: int) -> int:
        page = int(table[position // batch.page_size])
        return page * batch.page_size + position % batch.page_size


class _HashStep:
    def __init__(self, tokens: Int64) -> None:
        self._tokens = tokens
        self._sampled = False

    def sample(self, mask: Int32 | None) -> None:
        assert mask is None, "the hash model does not choose"
        self._sampled = True

    def result(self) -> StepResult:
        assert self._sampled, "sample comes first"
        return StepResult(tokens=self._tokens)
