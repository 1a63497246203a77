"""`Grammar`: how far one request has come in the grammar that its output follows."""

import logging
from collections.abc import Sequence, Set

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

log = logging.getLogger("pando.worker.grammar")


class Grammar:
    """Owned by one request; for `n` outputs compile the text once more, which copies."""

    def __init__(self, matcher: LLMatcher, tokenizer: LLTokenizer, eos_token_ids: Set[int]) -> None:
        self.matcher = matcher
        self._tokenizer = tokenizer
        # An end-of-sequence token is counted here: the matcher counts only some of them, and so
        # would roll back one token too many or too few.
        self._eos = eos_token_ids
        self._ended = False

    @property
    def is_finished(self) -> bool:
        """Nothing but an end-of-sequence token may follow, or one has been accepted."""
        return self._ended or (self.matcher.is_stopped() and not self.matcher.is_error())

    def fill_mask(self, words: NDArray[np.int32]) -> None:
        """Write which tokens may come next. Runs without the GIL.

        Text that the grammar forces counts as one token, the one that the tokenizer makes of it;
        other spellings of the same text are masked. A grammar that turns out to be too complex to
        go on with allows nothing, so that its request fails alone.

        Args:
            words: [ceil(vocab_size / 32)], contiguous; token t is bit t % 32 of word t // 32. Bits
                of ids that no token has are cleared.
        """
        self.matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self.forbid_if_failed(words)

    def forbid_if_failed(self, words: NDArray[np.int32]) -> None:
        """Where the grammar has failed, allow nothing in this mask of it."""
        if self.matcher.is_error():
            log.warning("a grammar failed: %s", self.matcher.get_error())
            words[:] = 0

    def accept(self, token: int) -> bool:
        """Go on by a token; False, and nothing has changed, where it is not allowed."""
        if self._ended:
            return False
        if token in self._eos:
            self._ended = self.matcher.is_accepting()
            return self._ended
        return self.matcher.try_consume_tokens([token]) == 1

    def rollback(self, count: int) -> None:
        """Take back the last accepted tokens, at most as many as there were."""
        if self._ended and count:
            self._ended = False
            count -= 1
        if count and not self.matcher.rollback(count):
            raise ValueError(f"cannot take back {count} tokens: {self.matcher.get_error()}")

    def fast_forward(self) -> list[int]:
        """The tokens that have to come next, as far as there is no choice; may be none.

        These are the tokens that the tokenizer makes of the forced text behind the last accepted
        token. The last of them are left out where a token of the vocabulary would take in some of
        the text that may follow, so with them the output is tokenized as if it had been given as a
        whole, but for the border to that last accepted token, for which there is `spell`. One
        exception changes how white space is split, never the text: a tokenizer that looks ahead may
        cut a run of it otherwise once it sees the word behind.

        Nothing is accepted by this.
        """
        return [] if self.is_finished else self.matcher.compute_ff_tokens()

    def spell(self, tokens: Sequence[int]) -> list[int]:
        """The tokenizer's own tokens of the text of these, as a text by itself.

        These as they are where they are no text: a special token is among them, or they begin or
        end within a character.
        """
        given, tokenizer = list(tokens), self._tokenizer
        if any(map(tokenizer.is_special_token, given)):
            return given
        text = tokenizer.decode_bytes(given)
        spelled = tokenizer.tokenize_bytes(text) if _is_utf8(text) else given
        return spelled if tokenizer.decode_bytes(spelled) == text else given


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
