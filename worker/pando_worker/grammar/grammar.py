"""`Grammar`: the state of one request in the grammar that constrains its output."""

import logging
from collections.abc import Sequence, Set

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

log = logging.getLogger("pando.worker.grammar")


class Grammar:
    """Owned by one request. For another output call `compile` again, which makes a copy."""

    def __init__(self, matcher: LLMatcher, tokenizer: LLTokenizer, eos_token_ids: Set[int]) -> None:
        self.matcher = matcher
        self._tokenizer = tokenizer
        # End-of-sequence tokens are counted here. The matcher counts only some of them, so its
        # rollback would be off by one.
        self._eos = eos_token_ids
        self._ended = False

    @property
    def is_finished(self) -> bool:
        """Only an end-of-sequence token may follow, or one has been accepted."""
        return self._ended or (self.matcher.is_stopped() and not self.matcher.is_error())

    def fill_mask(self, words: NDArray[np.int32]) -> None:
        """Write which tokens are allowed next. Runs without the GIL.

        Forced text is allowed only in the tokenizer's own tokenization; other tokenizations of the
        same text are masked. If a grammar turns out to be too complex to continue, it allows
        nothing, so only its own request fails.

        Args:
            words: [ceil(vocab_size / 32)], contiguous; token t is bit t % 32 of word t // 32. Bits
                of ids without a token are cleared.
        """
        self.matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self.forbid_if_failed(words)

    def forbid_if_failed(self, words: NDArray[np.int32]) -> None:
        """If the grammar has failed, clear its mask."""
        if self.matcher.is_error():
            log.warning("a grammar failed: %s", self.matcher.get_error())
            words[:] = 0

    def accept(self, token: int) -> bool:
        """Advance by a token. Returns False, and changes nothing, if the token is not allowed."""
        if self._ended:
            return False
        if token in self._eos:
            self._ended = self.matcher.is_accepting()
            return self._ended
        return self.matcher.try_consume_tokens([token]) == 1

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens. Raises ValueError if there are fewer."""
        if self._ended and count:
            self._ended = False
            count -= 1
        if count and not self.matcher.rollback(count):
            raise ValueError(f"cannot take back {count} tokens: {self.matcher.get_error()}")

    def fast_forward(self) -> list[int]:
        """The tokens that the grammar forces next; may be empty. Accepts none of them.

        They are the tokenizer's tokens for the forced text after the last accepted token. Tokens at
        the end that a longer token of the vocabulary could absorb, together with some of the text
        that may follow, are left out. So the output is tokenized as if the whole text had been
        given at once, except at the border with the last accepted token; see `spell`. One exception
        affects how white space is split, never the text: a tokenizer with look-ahead may split a
        run of white space differently when it sees the next word.
        """
        return [] if self.is_finished else self.matcher.compute_ff_tokens()

    def spell(self, tokens: Sequence[int]) -> list[int]:
        """The tokenizer's own tokens for the text that these tokens spell.

        Returns the tokens unchanged if they are not text: one is special, or they begin or end
        within a character.
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
