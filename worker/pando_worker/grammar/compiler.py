"""Compiles grammars for the scheduler, off its thread, and caches the most recently used ones.

A grammar's text does not show its cost: most compile in a millisecond, a hostile one takes seconds.
So each is first tried with a hundredth of the permitted work, on a thread that does nothing else;
one that needs more moves to a second thread. Cheap grammars therefore never wait for expensive
ones. A grammar that no request waits for any more is dropped when its turn comes.

A compiled grammar is never advanced itself. Each request gets its own copy, which takes
microseconds to make and shares the states that are already computed.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from pando_worker.grammar.errors import GrammarError
from pando_worker.grammar.fit import Fit
from pando_worker.grammar.grammar import Grammar
from pando_worker.grammar.lanes import Lane
from pando_worker.grammar.limits import LIMITS, MAX_GRAMMAR_CHARS, TRIAL_CHARS, TRIAL_LIMITS
from pando_worker.grammar.masks import MaskThreads
from pando_worker.grammar.vocabulary import load_vocabulary
from pando_worker.models.generation_config import read_generation_config
from pando_worker.tokenizer.essentials import load_essentials

_KEPT = 128
_FIRST_STEPS = 3
_NOTHING_FITS = "NoExtensionBias"  # llguidance's name for an empty mask


@dataclass(frozen=True, slots=True)
class _Tables:
    tokenizer: LLTokenizer
    eos: frozenset[int]
    fit: Fit


class _Kept:
    """A cached grammar, or one that will be cached when it is compiled."""

    def __init__(self) -> None:
        self.made: Future[LLMatcher | str] = Future()  # str: the error
        self._lock = threading.Lock()
        self._waiting: list[Future[Grammar]] = []
        self._is_gone = False  # it failed or was dropped

    def join(self, grammar: Future[Grammar]) -> bool:
        """Wait for it if it is not compiled yet. Returns False if it must be compiled again."""
        with self._lock:
            if not self._is_gone and not self.made.done():
                self._waiting.append(grammar)
            return not self._is_gone

    def is_wanted(self) -> bool:
        """Whether a request still waits for it; drops it if not."""
        with self._lock:
            self._is_gone = all(grammar.cancelled() for grammar in self._waiting)
            return not self._is_gone

    def set(self, made: LLMatcher | str) -> None:
        with self._lock:
            self._waiting.clear()
        self.made.set_result(made)

    def fail(self, error: BaseException) -> None:
        with self._lock:
            self._is_gone = True
        self.made.set_exception(error)


class GrammarCompiler:
    """Used from the scheduler's thread."""

    def __init__(
        self,
        model_dir: Path,
        vocab_size: int,
        eos_token_ids: Iterable[int] | None = None,
        *,
        mask_threads: int = 1,
        is_whole: bool = False,
    ) -> None:
        """
        Args:
            vocab_size: size of the model's logits, which may differ from the tokenizer's.
            eos_token_ids: any of them may end a complete output; by default those of the
                generation config. At least one must be below vocab_size.
            mask_threads: threads that fill the masks of a batch; with 1 the caller fills them.
            is_whole: outputs are texts of their own, not continuations of their prompts.
        """
        self.vocab_size = vocab_size
        self._model_dir = model_dir
        self._eos_token_ids = eos_token_ids
        self._is_whole = is_whole
        self._tables: _Tables | None = None
        self._loading = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._tries = Lane("grammar")
        self._costly = Lane("costly-grammar")
        self._masks = MaskThreads(mask_threads)

    def compile(self, text: str, client: bytes = b"") -> Future[Grammar]:
        """A new state at the start of the grammar.

        Args:
            text: in llguidance's serialized form.
            client: the owner of the grammar. One client's grammars are compiled one at a time, in
                turn with those of other clients.

        The future raises GrammarError for a grammar that is invalid or too large. If the grammar is
        cached, valid or not, the future is already done; without this, one invalid grammar sent
        again and again would occupy the threads. The future raises ModelError if the model's
        tokenizer cannot be used. Errors other than GrammarError are not cached: the cause may be
        transient, such as the disk.

        Cancel it if the grammar is no longer needed.
        """
        grammar: Future[Grammar] = Future()
        kept = self._kept.get(text)
        if kept is None or not kept.join(grammar):
            kept = self._kept[text] = _Kept()
            kept.join(grammar)
            self._tries.submit(client, partial(self._try, text, client, kept))
        self._kept.move_to_end(text)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        kept.made.add_done_callback(partial(self._copy, grammar))
        return grammar

    def fill_masks(self, grammars: Sequence[tuple[object, int]], mask: NDArray[np.int32]) -> None:
        """Write the tokens that each of these grammars of this compiler allows next.

        Args:
            grammars: pairs of a grammar and its row of the mask
            mask: [rows, ceil(vocab_size / 32)], see `Grammar.fill_mask`
        """
        own = [(grammar, row) for grammar, row in grammars if isinstance(grammar, Grammar)]
        assert len(own) == len(grammars)
        self._masks.fill(own, mask)

    def close(self) -> None:
        self._tries.close()
        self._costly.close()

    def _try(self, text: str, client: bytes, kept: _Kept) -> None:
        """Compile a grammar at once if it is cheap."""
        if not kept.is_wanted():
            return
        try:
            is_cheap = self._is_cheap(text)
        except BaseException as error:  # a panic in llguidance is not an Exception
            kept.fail(error)
            return
        if is_cheap:
            self._make(text, kept)
        else:
            self._costly.submit(client, partial(self._make, text, kept))

    def _make(self, text: str, kept: _Kept) -> None:
        if not kept.is_wanted():
            return
        try:
            kept.set(self._compile(text))
        except GrammarError as error:  # kept as text: its traceback would keep the matcher alive
            kept.set(str(error))
        except BaseException as error:
            kept.fail(error)

    def _is_cheap(self, text: str) -> bool:
        if len(text) > TRIAL_CHARS:
            return False
        matcher = self._matcher(text, TRIAL_LIMITS)
        return not matcher.is_error() and self._begin(matcher) is None

    def _copy(self, grammar: Future[Grammar], done: Future[LLMatcher | str]) -> None:
        """Answer a future of `compile`. Catches everything: an error raised in a callback would be
        lost, and the request would wait for ever."""
        if not grammar.set_running_or_notify_cancel():
            return
        try:
            made = done.result()
            if isinstance(made, str):
                raise GrammarError(made)
            tables = self._load()
            grammar.set_result(Grammar(made.deep_copy(), tables.tokenizer, tables.eos))
        except Exception as error:
            grammar.set_exception(error)
        except BaseException as error:
            grammar.set_exception(RuntimeError(f"llguidance failed: {error}"))

    def _compile(self, text: str) -> LLMatcher:
        if len(text) > MAX_GRAMMAR_CHARS:
            raise GrammarError(f"the grammar has {len(text)} characters: over {MAX_GRAMMAR_CHARS}")
        matcher = self._matcher(text, LIMITS)
        if matcher.is_error():
            raise GrammarError(_problem(matcher))
        if problem := self._begin(matcher.deep_copy()):
            raise GrammarError(problem)
        return matcher

    def _matcher(self, text: str, limits: LLParserLimits) -> LLMatcher:
        tables = self._load()
        return LLMatcher(tables.tokenizer, tables.fit.fitted(text), log_level=0, limits=limits)

    def _begin(self, matcher: LLMatcher) -> str | None:
        """Take the first steps, along forced tokens or else any allowed token; returns what is
        wrong with the grammar.

        Only then do some grammars turn out to allow nothing or to be too complex. The first masks
        are also the most expensive, up to a second for a hostile grammar, and the copies share
        their result.
        """
        words = np.zeros(-(-self.vocab_size // 32), dtype=np.int32)
        had_choice = False
        for _ in range(_FIRST_STEPS):
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            if not matcher.is_error() and not matcher.is_stopped():
                if not (tokens := matcher.compute_ff_tokens()):
                    allowed = self._some_tokens(words)
                    had_choice |= len(allowed) > 1
                    tokens = allowed[:1]
                matcher.try_consume_tokens(tokens)
            if matcher.is_error():
                # Where tokens cannot spell any text, another token may have led further.
                is_dead_end = had_choice and _fits_nothing(matcher)
                return None if is_dead_end else _problem(matcher)
        return None

    def _some_tokens(self, words: NDArray[np.int32]) -> list[int]:
        """Tokens that the mask allows and that do not end the output, two at most."""
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
        eos = self._load().eos
        return list(islice((int(id) for id in allowed if id not in eos), 2))

    def _load(self) -> _Tables:
        """Load the tables with the first grammar: it is slow, and many workers never get one."""
        with self._loading:
            if self._tables is None:
                self._tables = _load_tables(
                    self._model_dir, self.vocab_size, self._eos_token_ids, is_whole=self._is_whole
                )
            return self._tables


def _error(matcher: LLMatcher) -> str:
    return matcher.get_error().removesuffix("<non-verbose/>").strip()


def _fits_nothing(matcher: LLMatcher) -> bool:
    return _error(matcher) == _NOTHING_FITS


def _problem(matcher: LLMatcher) -> str:
    error = _error(matcher)
    if _fits_nothing(matcher):
        return "the grammar allows no output: no finite text of the model's tokens matches it"
    return f"the grammar cannot be followed: {error}"


def _load_tables(
    model_dir: Path, vocab_size: int, eos_token_ids: Iterable[int] | None, *, is_whole: bool
) -> _Tables:
    tokenizer = load_essentials(model_dir)
    if eos_token_ids is None:
        config = read_generation_config(model_dir, tokenizer.eos_token_id, vocab_size)
        eos_token_ids = config.eos_token_ids
    eos = frozenset(id for id in eos_token_ids if id < vocab_size)
    if not eos:
        raise GrammarError("the model has no end-of-sequence token to end an output with")
    vocabulary = load_vocabulary(tokenizer.backend(), vocab_size, eos)
    fit = Fit(
        forces=vocabulary.spells_any_text,
        leads_with_space=is_whole and vocabulary.leads_with_space,
    )
    return _Tables(LLTokenizer(TokenizerWrapper(vocabulary), eos_token=sorted(eos)), eos, fit)
