"""Requests whose output follows a grammar: masks before sampling, and tokens that need none.

Where a grammar leaves no choice for several tokens (an object's next key, say), they are taken
without sampling and run like a chunk of prompt: jump-forward. That starts one token after it was
noticed, since with overlap that one is being sampled already; without, it must be the same.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pando_worker.runner.batch import Int32
from pando_worker.scheduler.batching import Row
from pando_worker.scheduler.req import Grammar, Req


class PendingGrammar(Protocol):
    """A grammar that is being compiled, as `concurrent.futures.Future` has it."""

    def done(self) -> bool: ...

    def result(self) -> Grammar:
        """Raises GrammarError where the text is wrong."""
        ...


class GrammarCompiler(Protocol):
    """Makes grammars of text, on threads of its own."""

    vocab_size: int

    def compile(self, text: str) -> PendingGrammar:
        """A new state of the grammar."""
        ...


# Fewer forced tokens than this are not worth leaving the pipeline for.
MIN_JUMP = 3


def is_constrained(rows: Sequence[Row]) -> bool:
    return any(row.req.grammar is not None and row.samples for row in rows)


def build_mask(rows: Sequence[Row], vocab_size: int) -> Int32:
    """What each row that samples may yield, [num_samples, ceil(vocab_size / 32)]."""
    sampled = [row.req for row in rows if row.samples]
    mask = np.full((len(sampled), -(-vocab_size // 32)), -1, dtype=np.int32)
    for words, req in zip(mask, sampled, strict=True):
        if req.grammar is not None and req.ending is None:
            req.grammar.fill_mask(words)
    return mask


def take_jump(req: Req) -> list[int]:
    """The tokens that follow without a choice, if it was time to take them."""
    assert req.grammar is not None
    forced = req.grammar.fast_forward() if req.logprobs is None else []
    if req.jumps:
        req.jumps = False
        return forced[: req.remaining_tokens]
    req.jumps = len(forced) >= MIN_JUMP
    return []
