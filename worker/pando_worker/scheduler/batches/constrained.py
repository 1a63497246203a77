"""Requests whose output follows a grammar: masks before sampling, and jump-forward.

Where a grammar leaves only one choice for several tokens (for example an object's next key), they
are appended without sampling and run like a chunk of a prompt: jump-forward. The token before them
was sampled without knowledge of the text that follows, so it is retokenized together with them (`n`
and `ame` become `name`). That token has not been sent to the client yet. With overlap, a step
already runs it: the token that this step samples is dropped, and its keys and values are
overwritten.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pando_worker.batch import Int32
from pando_worker.grammar.speech import SpeechGrammar
from pando_worker.scheduler.req import OutputGrammar, Req


class PendingGrammar(Protocol):
    """A grammar that is being compiled; has the methods of `concurrent.futures.Future`."""

    def done(self) -> bool: ...

    def result(self) -> OutputGrammar:
        """Raises GrammarError if the text is invalid."""
        ...

    def cancel(self) -> bool:
        """Note that the request no longer needs it."""
        ...


class OutputGrammarCompiler(Protocol):
    """Compiles grammars from text, on its own threads."""

    vocab_size: int

    def compile(self, text: str, client: bytes) -> PendingGrammar:
        """Start compiling; yields the grammar in its initial state.

        Args:
            client: those of one client are compiled in turn with those of others.
        """
        ...

    def fill_masks(self, grammars: Sequence[tuple[OutputGrammar, int]], mask: Int32) -> None:
        """Write each grammar's allowed tokens into the row of the mask that is paired with it."""
        ...


# A step with a chunk in it costs more than sampling fewer forced tokens than this.
MIN_JUMP = 3


def build_mask(sampled: Sequence[Req], grammars: OutputGrammarCompiler) -> Int32:
    """The allowed tokens of requests that sample, [len(sampled), ceil(vocab_size / 32)]."""
    mask = np.full((len(sampled), -(-grammars.vocab_size // 32)), -1, dtype=np.int32)
    constrained = [
        (req.grammar, index)
        for index, req in enumerate(sampled)
        if req.grammar is not None and req.ending is None and not req.stale
    ]
    by_compiler = []
    for grammar, index in constrained:
        if isinstance(grammar, SpeechGrammar):
            grammar.fill_mask(mask[index])
        else:
            by_compiler.append((grammar, index))
    grammars.fill_masks(by_compiler, mask)
    return mask


def begin_jump(req: Req) -> list[int]:
    """Take the last token back if the grammar forces the tokens after it, and return the tokens
    that replace it: those of its text and of the forced text. Returns an empty list and changes
    nothing if there is no jump, or if the request wants log-probabilities of all tokens."""
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
