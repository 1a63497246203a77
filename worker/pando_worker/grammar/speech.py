"""`SpeechGrammar`: which tokens Whisper may produce next, by `SpeechRules`.

These are the filters of OpenAI's decoder (`SuppressTokens`, `SuppressBlank`,
`ApplyTimestampRules`), as transformers has them. The last rule, that a time stamp follows if all of
them together are likelier than any text, depends on the logits: the runner applies it
(`runner/sampling/edits.py`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pando_worker.messages import SpeechRules


class SpeechGrammar:
    """Owned by one request; has the interface of any output's grammar."""

    is_finished = False

    def __init__(self, rules: SpeechRules, vocab_size: int) -> None:
        """
        Args:
            rules: whose tokens are all below `vocab_size`
        """
        self._rules = rules
        self._never = np.array(rules.suppressed, dtype=np.int64)
        self._not_first = np.array(rules.suppressed_first, dtype=np.int64)
        # Bits of whole words; those without a token are never allowed.
        self._allowed = np.zeros(-(-vocab_size // 32) * 32, dtype=np.bool_)
        self._vocab_size = vocab_size
        self._output: list[int] = []
        self._stamps: list[int] = []  # those of the output

    def fill_mask(self, words: NDArray[np.int32]) -> None:
        """Write which tokens are allowed next.

        Args:
            words: [ceil(vocab_size / 32)]; token t is bit t % 32 of word t // 32
        """
        allowed, output = self._allowed, self._output
        allowed[: self._vocab_size] = True
        allowed[self._never] = False
        if not output:
            allowed[self._not_first] = False
        if (first := self._rules.first_timestamp) is not None:
            self._apply_timestamps(allowed, first)
        words[:] = np.packbits(allowed, bitorder="little").view(np.int32)

    def masks(self, tokens: Sequence[int], first: int) -> NDArray[np.int32]:
        """What is allowed behind each beginning of further tokens, from that of `first` tokens to
        the whole: [len(tokens) - first + 1, words], as of `fill_mask`. The state stays."""
        words = np.empty((len(tokens) - first + 1, len(self._allowed) // 32), dtype=np.int32)
        for count in range(len(tokens) + 1):
            if count >= first:
                self.fill_mask(words[count - first])
            if count < len(tokens):
                self.accept(tokens[count])
        self.rollback(len(tokens))
        return words

    def _apply_timestamps(self, allowed: NDArray[np.bool_], first: int) -> None:
        output = self._output
        if not output:
            allowed[:first] = False
            if self._rules.max_initial is not None:
                allowed[first + self._rules.max_initial + 1 :] = False
            return
        begins_a_pair = False
        if output[-1] >= first:
            begins_a_pair = len(output) > 1 and output[-2] < first
            if begins_a_pair:
                allowed[: self._rules.end_token] = False  # its second one follows, or the end
            else:
                allowed[first:] = False
        if self._stamps:
            allowed[first : self._stamps[-1] + (not begins_a_pair)] = False

    def accept(self, token: int) -> bool:
        self._output.append(token)
        first = self._rules.first_timestamp
        if first is not None and token >= first:
            self._stamps.append(token)
        return True

    def rollback(self, count: int) -> None:
        for _ in range(count):
            if self._stamps and self._stamps[-1] == self._output[-1]:
                self._stamps.pop()
            self._output.pop()

    def fast_forward(self) -> list[int]:
        return []

    def spell(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)
