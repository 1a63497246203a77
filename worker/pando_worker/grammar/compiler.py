"""Compiles grammars for the scheduler, off its thread, and keeps the ones that were used last.

A compiled grammar is never advanced itself: every request gets a copy of its own, which takes
microseconds and shares what the grammar has worked out so far.
"""

from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from pando_worker.grammar.errors import GrammarError
from pando_worker.grammar.grammar import Grammar
from pando_worker.grammar.limits import LIMITS, MAX_GRAMMAR_CHARS, compiler_threads
from pando_worker.grammar.vocabulary import load_vocabulary

_THREADS = 2
_KEPT = 128


class GrammarCompiler:
    """Used from the scheduler's thread."""

    def __init__(self, model_dir: Path, vocab_size: int, eos_token_ids: Iterable[int]) -> None:
        """
        Args:
            vocab_size: of the model's logits, whatever the tokenizer has.
            eos_token_ids: of the generation config; any of them may end an output that is
                complete. At least one must be below vocab_size.

        Raises:
            BrokenCheckpoint, UnsupportedModel: there is no usable tokenizer.
        """
        self.vocab_size = vocab_size
        self._eos = frozenset(id for id in eos_token_ids if id < vocab_size)
        assert self._eos, "a grammar's output ends with an end-of-sequence token"
        vocabulary = load_vocabulary(model_dir, vocab_size, self._eos)
        self._tokenizer = LLTokenizer(TokenizerWrapper(vocabulary), eos_token=sorted(self._eos))
        self._kept: OrderedDict[str, Future[LLMatcher]] = OrderedDict()
        self._pool = compiler_threads(_THREADS, "grammar")

    def compile(self, text: str) -> Future[Grammar]:
        """A new state at the grammar's beginning.

        Args:
            text: in llguidance's serialized form.

        The future raises GrammarError for a grammar that is wrong or too large. It is done already
        where the grammar is kept.
        """
        compiled = self._kept.get(text)
        if compiled is None:
            compiled = self._kept[text] = self._pool.submit(self._compile, text)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(text)
        grammar: Future[Grammar] = Future()

        def copy(done: Future[LLMatcher]) -> None:
            if error := done.exception():
                grammar.set_exception(error)
            else:
                grammar.set_result(Grammar(done.result().deep_copy(), self._eos))

        compiled.add_done_callback(copy)
        return grammar

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, text: str) -> LLMatcher:
        if len(text) > MAX_GRAMMAR_CHARS:
            raise GrammarError(f"the grammar has {len(text)} characters: over {MAX_GRAMMAR_CHARS}")
        matcher = LLMatcher(self._tokenizer, text, log_level=0, limits=LIMITS)
        if matcher.is_error():
            raise GrammarError(matcher.get_error().removesuffix("<non-verbose/>").strip())
        return matcher
