"""Grammars over the hash model's tokens, simple enough to be computed by hand.

`even` allows even tokens. `3:A B` leaves the first three tokens free and forces the following ones,
then ends; `3:A B …` continues freely. `slow` is compiled when the test completes it. Their tokens
have no text, so `spell` returns them unchanged; `test_jumps.py` has grammars over text.
"""

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from pando_worker.grammar.errors import GrammarError
from pando_worker.scheduler.req import OutputGrammar
from tests.worker.scheduler.hash_model import VOCAB


class GrammarsForTests:
    vocab_size = VOCAB

    def __init__(self) -> None:
        self.slow: list[Future[OutputGrammar]] = []

    def compile(self, text: str, client: bytes = b"") -> Future[OutputGrammar]:
        future: Future[OutputGrammar] = Future()
        if text.startswith("slow"):
            self.slow.append(future)
        elif text == "even":
            future.set_result(_Even())
        elif text[0].isdigit():
            free, _, forced = text.partition(":")
            ends = not forced.endswith("…")
            tokens = [int(token) for token in forced.removesuffix("…").split()]
            future.set_result(_Forced(int(free), tokens, ends=ends))
        else:
            future.set_exception(GrammarError(f"no such grammar: {text}"))
        return future

    def fill_masks(
        self, grammars: Sequence[tuple[OutputGrammar, int]], mask: NDArray[np.int32]
    ) -> None:
        for grammar, row in grammars:
            assert isinstance(grammar, _Even | _Forced)
            grammar.fill_mask(mask[row])


class _Even:
    is_finished = False

    def fill_mask(self, words: NDArray[np.int32]) -> None:
        words[:] = 0x55555555

    def accept(self, token: int) -> bool:
        return token % 2 == 0

    def rollback(self, count: int) -> None:
        pass

    def fast_forward(self) -> list[int]:
        return []

    def spell(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)


class _Forced:
    def __init__(self, free: int, forced: list[int], *, ends: bool) -> None:
        self._free = free
        self._forced = forced
        self._ends = ends
        self._taken = 0

    @property
    def is_finished(self) -> bool:
        return self._ends and not self.fast_forward() and self._taken >= self._free

    def fill_mask(self, words: NDArray[np.int32]) -> None:
        if forced := self.fast_forward():
            words[:] = 0
            words.view(np.uint32)[forced[0] // 32] = np.uint32(1 << forced[0] % 32)

    def accept(self, token: int) -> bool:
        if (forced := self.fast_forward()) and forced[0] != token:
            return False
        self._taken += 1
        return True

    def rollback(self, count: int) -> None:
        self._taken -= count

    def fast_forward(self) -> list[int]:
        return self._forced[self._taken - self._free :] if self._taken >= self._free else []

    def spell(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)
