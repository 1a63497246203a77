"""Requests whose output follows a grammar: masks before sampling, and tokens that need none.

Where a grammar leaves no choice for several tokens (an object's next key, say), they are taken
without sampling and run like a chunk of prompt: jump-forward. The token before them was sampled
without knowing what follows, so it is cut anew together with them, as the tokenizer cuts their
text (`n` and `ame` become `name`). Nobody has been sent it yet. With overlap a step already runs
it: what that step samples is dropped, and its keys and values are written over.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pando_worker.batch import Int32
from pando_worker.scheduler.batches.batching import Row
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

    def fill_masks(self, grammars: Sequence[tuple[Grammar, int]], mask: Int32) -> None:
        """Write what each of these may yield into the row of the mask that is named with it."""
        ...


# Fewer forced tokens than this are not worth a step with a chunk in it.
MIN_JUMP = 3


def is_constrained(rows: Sequence[Row]) -> bool:
    return any(row.req.grammar is not None and row.samples for row in rows)


def build_mask(rows: Sequence[Row], grammars: GrammarCompiler) -> Int32:
    """What each row that samples may yield, [num_samples, ceil(vocab_size / 32)]."""
    sampled = [row.req for row in rows if row.samples]
    mask = np.full((len(sampled), -(-grammars.vocab_size // 32)), -1, dtype=np.int32)
    constrained = [
        (req.grammar, index)
        for index, req in enumerate(sampled)
        if req.grammar is not None and req.ending is None and not req.stale
    ]
    grammars.fill_masks(constrained, mask)
    return mask


def begin_jump(req: Req) -> list[int]:
    """Take the last token back where others follow it without a choice, and return what to go on
    with instead: the tokens of its text and theirs. Empty, and nothing has changed, where there is
    no jump, or where log-probabilities of all tokens are wanted."""
    if req.grammar is None or req.logprobs is not None:
        return []
    forced = req.grammar.fast_forward()
    if len(forced) < MIN_JUMP:
        return []
    last = int(req.ids[req.num_known - 1])
    tokens = req.grammar.spell([last, *forced])
    req.grammar.rollback(1)
    req.take_back()
    return tokens
