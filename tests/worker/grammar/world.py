"""Helpers of the grammar tests: masks as sets, tokens as bytes."""

from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.grammar.grammar import Grammar
from pando_worker.server.jobs.constraints import grammar_of
from pando_worker.tokenizer.detokenizer import Vocabulary
from tests.waiting import PATIENCE_S


@dataclass(frozen=True, repr=False)
class World:
    compiler: GrammarCompiler
    tokenizer: Tokenizer
    eos: list[int]

    def __post_init__(self) -> None:
        vocabulary = Vocabulary(self.tokenizer)
        spelled = {id: vocabulary[id] for id in range(self.tokenizer.get_vocab_size())}
        object.__setattr__(self, "_spelled", {id: text for id, text in spelled.items() if text})

    @property
    def spelled(self) -> dict[int, bytes]:
        """The bytes of each token that has any."""
        spelled: dict[int, bytes] = self.__dict__["_spelled"]
        return spelled

    def id(self, token: str) -> int:
        id = self.tokenizer.token_to_id(token)
        assert id is not None
        return id

    def grammar(self, **constraint: object) -> Grammar:
        """The grammar of a request with these fields."""
        text = grammar_of(**constraint)  # type: ignore[arg-type]
        assert text is not None
        return self.compiler.compile(text).result(timeout=PATIENCE_S)

    def allowed(self, grammar: Grammar) -> set[int]:
        words = np.full(-(-self.compiler.vocab_size // 32), -1, dtype=np.int32)
        grammar.fill_mask(words)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        return set(np.nonzero(bits)[0].tolist())

    def take(self, grammar: Grammar, text: str) -> None:
        """Accept tokens of this text, each the longest that fits."""
        left = text.encode()
        while left:
            fitting = (id for id, spelled in self.spelled.items() if left.startswith(spelled))
            id = max(fitting, key=lambda id: len(self.spelled[id]), default=-1)
            assert grammar.accept(id), f"{self.spelled[id]!r} of {text!r}"
            left = left.removeprefix(self.spelled[id])
