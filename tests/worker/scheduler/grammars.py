"""Grammars over the hash model's tokens, simple enough to be computed by hand.

`even` allows even tokens. `list A B C …` allows only the tokens named, one at each place, and then
nothing more; `3:A B` lets the first three tokens free and forces those after them. `slow …` is
compiled when the test says so.
"""

from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from pando_worker.grammar.errors import GrammarError
from pando_worker.scheduler.req import Grammar
from tests.worker.scheduler.hash_model import VOCAB


class GrammarsForTests:
    vocab_size = VOCAB

    def __init__(self) -> None:
        self.slow: list[Future[Grammar]] = []

    def compile(self, text: str) -> Future[Grammar]:
        future: Future[Grammar] = Future()
        if text.startswith("slow"):
            self.slow.append(future)
        elif text == "even":
            future.set_result(_Even())
        elif text[0].isdigit():
            free, _, forced = text.partition(":")
            future.set_result(_Forced(int(free), [int(token) for token in forced.split()]))
        else:
            future.set_exception(GrammarError(f"no such grammar: {text}"))
        return future


class _Even:
    is_finished = False

    def fill_mask(self, words: NDArray[np.int32]) -> None:
        words[:] = 0x55555555

    def accept(self, token: int) -> bool:
        return token % 2 == 0

    def fast_forward(self) -> list[int]:
        return []


class _Forced:
    def __init__(self, free: int, forced: list[int]) -> None:
        self._free = free
        self._forced = forced
        self._taken = 0

    @property
    def is_finished(self) -> bool:
        return self._taken == self._free + len(self._forced)

    def fill_mask(self, words: NDArray[np.int32]) -> None:
        if self._taken >= self._free:
            token = self._forced[self._taken - self._free]
            words[:] = 0
            words.view(np.uint32)[token // 32] = np.uint32(1 << token % 32)

    def accept(self, token: int) -> bool:
        at = self._taken - self._free
        if at >= 0 and self._forced[at] != token:
            return False
        self._taken += 1
        return True

    def fast_forward(self) -> list[int]:
        return self._forced[self._taken - self._free :] if self._taken >= self._free else []
