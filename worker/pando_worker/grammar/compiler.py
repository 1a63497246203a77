"""Compiles grammars for the scheduler, off its thread, and keeps the ones that were used last.

Nobody can see from a text what it costs: most grammars take a millisecond, a hostile one seconds.
So each is tried first with a hundredth of the work that it may cause, on a thread that does nothing
else; one that needs more goes to a second thread. So no cheap grammar waits for a costly one. A
grammar that nobody waits for any more is dropped when its turn comes.

A compiled grammar is never advanced itself: every request gets a copy of its own, which takes
microseconds and shares what the grammar has worked out so far.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from pando_worker.grammar.errors import GrammarError
from pando_worker.grammar.grammar import Grammar
from pando_worker.grammar.lanes import Lane
from pando_worker.grammar.limits import LIMITS, MAX_GRAMMAR_CHARS, TRIAL_CHARS, TRIAL_LIMITS
from pando_worker.grammar.masks import MaskThreads
from pando_worker.grammar.vocabulary import load_vocabulary
from pando_worker.models.generation_config import read_generation_config
from pando_worker.tokenizer.essentials import load_essentials

_KEPT = 128
_FIRST_STEPS = 3
_NOTHING_FITS = "NoExtensionBias"  # llguidance's word for an empty mask


@dataclass(frozen=True, slots=True)
class _Tables:
    tokenizer: LLTokenizer
    eos: frozenset[int]


class _Kept:
    """A grammar that is kept, or will be once it is made."""

    def __init__(self) -> None:
        self.made: Future[LLMatcher | str] = Future()  # the str says what is wrong
        self._lock = threading.Lock()
        self._waiting: list[Future[Grammar]] = []
        self._is_gone = False  # it has failed, or was dropped

    def join(self, grammar: Future[Grammar]) -> bool:
        """Wait for it, if it is not made yet. Returns False if it has to be made anew."""
        with self._lock:
            if not self._is_gone and not self.made.done():
                self._waiting.append(grammar)
            return not self._is_gone

    def is_wanted(self) -> bool:
        """Whether a request still waits for it; if none does, it is dropped."""
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
    ) -> None:
        """
        Args:
            vocab_size: of the model's logits, whatever the tokenizer has.
            eos_token_ids: any of them may end an output that is complete; by default those of the
                generation config. At least one must be below vocab_size.
            mask_threads: that fill the masks of a batch; with 1 whoever asks fills them.
        """
        self.vocab_size = vocab_size
        self._model_dir = model_dir
        self._eos_token_ids = eos_token_ids
        self._tables: _Tables | None = None
        self._loading = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._tries = Lane("grammar")
        self._costly = Lane("costly-grammar")
        self._masks = MaskThreads(mask_threads)

    def compile(self, text: str, client: bytes = b"") -> Future[Grammar]:
        """A new state at the grammar's beginning.

        Args:
            text: in llguidance's serialized form.
            client: whose grammar it is; those of one client are compiled one after the other, in
                turn with those of others.

        The future raises GrammarError for a grammar that is wrong or too large. It is done already
        if the grammar is kept, whether it is right or wrong: otherwise a wrong one, sent again and
        again, would keep the threads from the others. It raises ModelError if the model's tokenizer
        cannot be used. That and any other failure is not kept: it may have been the disk.

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
        """What each of these grammars, which are of this compiler, allows next.

        Args:
            grammars: each with its row of the mask
            mask: [rows, ceil(vocab_size / 32)], see `Grammar.fill_mask`
        """
        own = [(grammar, row) for grammar, row in grammars if isinstance(grammar, Grammar)]
        assert len(own) == len(grammars)
        self._masks.fill(own, mask)

    def close(self) -> None:
        self._tries.close()
        self._costly.close()

    def _try(self, text: str, client: bytes, kept: _Kept) -> None:
        """Make a grammar at once if it is a cheap one."""
        if not kept.is_wanted():
            return
        try:
            is_cheap = self._is_cheap(text)
        except BaseException as error:  # a panic in llguidance is no Exception
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
        except GrammarError as error:  # as text: its traceback would keep the matcher
            kept.set(str(error))
        except BaseException as error:
            kept.fail(error)

    def _is_cheap(self, text: str) -> bool:
        if len(text) > TRIAL_CHARS:
            return False
        matcher = LLMatcher(self._load().tokenizer, text, log_level=0, limits=TRIAL_LIMITS)
        if not matcher.is_error():
            self._begin(matcher)
        return not matcher.is_error()

    def _copy(self, grammar: Future[Grammar], done: Future[LLMatcher | str]) -> None:
        """Answer a future of `compile`. Nobody would notice what a callback raises, and the request
        would wait for ever."""
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
        matcher = LLMatcher(self._load().tokenizer, text, log_level=0, limits=LIMITS)
        if matcher.is_error():
            raise GrammarError(_problem(matcher))
        first = matcher.deep_copy()
        self._begin(first)
        if first.is_error():
            raise GrammarError(_problem(first))
        return matcher

    def _begin(self, matcher: LLMatcher) -> None:
        """Go the first steps, by what is forced or else by any token that is allowed.

        Some grammars show only then that nothing fits them, or that they are too complex to be
        followed. The first masks are also the dearest, up to a second for a hostile grammar, and
        what they work out is shared with the copies.
        """
        words = np.zeros(-(-self.vocab_size // 32), dtype=np.int32)
        for _ in range(_FIRST_STEPS):
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            if not matcher.is_error() and not matcher.is_stopped():
                matcher.try_consume_tokens(matcher.compute_ff_tokens() or self._some_token(words))
            if matcher.is_error():
                return

    def _some_token(self, words: NDArray[np.int32]) -> list[int]:
        """One that the mask allows and that does not end the output; none where there is none."""
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
        return [int(id) for id in allowed if id not in self._load().eos][:1]

    def _load(self) -> _Tables:
        """Once, with the first grammar: it takes long, and many workers never see one."""
        with self._loading:
            if self._tables is None:
                self._tables = _load_tables(self._model_dir, self.vocab_size, self._eos_token_ids)
            return self._tables


def _problem(matcher: LLMatcher) -> str:
    error = matcher.get_error().removesuffix("<non-verbose/>").strip()
    if error == _NOTHING_FITS:
        return "the grammar allows no output: nothing that ends can fit it"
    return f"the grammar cannot be followed: {error}"


def _load_tables(model_dir: Path, vocab_size: int, eos_token_ids: Iterable[int] | None) -> _Tables:
    tokenizer = load_essentials(model_dir)
    if eos_token_ids is None:
        config = read_generation_config(model_dir, tokenizer.eos_token_id, vocab_size)
        eos_token_ids = config.eos_token_ids
    eos = frozenset(id for id in eos_token_ids if id < vocab_size)
    if not eos:
        raise GrammarError("the model has no end-of-sequence token to end an output with")
    vocabulary = load_vocabulary(tokenizer.backend(), vocab_size, eos)
    return _Tables(LLTokenizer(TokenizerWrapper(vocabulary), eos_token=sorted(eos)), eos)
