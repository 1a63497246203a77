"""`Req`: one request in the scheduler, as data.

A request is its tokens and one number: `cached_len`, how many of them have keys and values in the
pool. Those between `cached_len` and `num_tokens` still have to run: a whole prompt, its rest
after a cache hit or a retraction, or, in decode, just the last token.

A step is launched before the previous one has yielded its tokens, so both numbers run ahead of the
known tokens: `cached_len` counts those that launched steps run, `unseen` those that they sample.

    ids      0 ........... len(prompt) ........... num_known ........... num_tokens
             prompt         output that is known    sampled, not seen yet
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pando_worker.batch import Arrays, Int64
from pando_worker.memory.image_ids import FIRST_ID
from pando_worker.memory.radix_cache import Tokens, TreeNode
from pando_worker.messages import (
    LogprobsWanted,
    Pooling,
    Probe,
    SamplingParams,
    SpeechRules,
    TokenLogprob,
)

Float32 = NDArray[np.float32]


class OutputGrammar(Protocol):
    """The grammar of a request's output, in the state after the tokens so far."""

    @property
    def is_finished(self) -> bool:
        """Whether only an end-of-sequence token may follow."""
        ...

    def accept(self, token: int) -> bool:
        """Advance by a token; returns False and changes nothing if it is not allowed."""
        ...

    def rollback(self, count: int) -> None:
        """Take back the last accepted tokens."""
        ...

    def fast_forward(self) -> list[int]:
        """The tokens that the grammar forces next; may be empty."""
        ...

    def spell(self, tokens: Sequence[int]) -> list[int]:
        """Retokenize: the tokens into which the tokenizer encodes the text of these."""
        ...


class Ending(Enum):
    """Why a request ended; it holds its pages until no launched step needs them."""

    FINISHED = auto()  # already answered
    FAILED = auto()  # already answered; what it computed leaves the cache
    ABORTED = auto()  # answered when its pages are released
    LATE = auto()  # its deadline passed; likewise answered when its pages are released


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """An image of a prompt, and where it is."""

    digest: bytes
    start: int  # its first token
    length: int
    token: int  # the vocabulary's, in the place of each of its embeddings
    arrays: Arrays
    grid: tuple[int, int, int] | None = None  # as of `PromptImage`
    time: int = 0  # as of `PromptImage`
    is_continued: bool = False  # likewise
    is_whole: bool = False  # its tokens see each other, so one step runs them all
    # Which of its tokens have embeddings, from its start on; None: all, there are no marks.
    places: Int64 | None = None

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def embeddings(self) -> int:
        return self.length if self.places is None else len(self.places)

    def embeddings_in(self, start: int, end: int) -> tuple[int, Int64]:
        """Of the prompt's tokens from `start` to before `end`: its first embedding there, and the
        tokens of this one and those that follow."""
        if self.places is None:
            return start - self.start, np.arange(start, end)
        first, last = np.searchsorted(self.places, (start - self.start, end - self.start))
        return int(first), self.places[first:last] + self.start

    @property
    def shift(self) -> int:
        """What it adds to the rotary positions of all tokens behind it: at most 0."""
        if self.grid is None:
            return 0
        return (0 if self.is_continued else max(self.grid[1:])) - self.length


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """What the encoder reads for a request."""

    digest: bytes
    length: int  # positions
    array: NDArray[Any]
    key: Tokens  # [whole pages], by which the radix cache knows it
    num_pages: int
    namespace: bytes  # of the radix cache


@dataclass(frozen=True, slots=True)
class Alignment:
    """The tokens of a request to align with its source."""

    first: int  # of them; the others are all behind it
    positions: int  # of the source, that are not padding


@dataclass(slots=True, eq=False)
class Req:
    rid: str
    ids: Tokens  # [prompt and max_new_tokens]: room for all tokens it may ever have
    num_known: int  # of these, how many are known: the prompt and the output so far
    prompt_len: int
    sampling: SamplingParams
    arrival: int  # a counter: orders requests that are otherwise equal
    queued_at: float  # the scheduler's clock, seconds
    logprobs: LogprobsWanted | None = None
    pooling: Pooling | None = None  # set for a request to embed, which produces no token
    is_normalized: bool = True  # its vector has length 1
    second: int = 0  # the first token of the second text of a pair; 0: it is no pair
    priority: int = 0
    namespace: bytes = b""  # of the radix cache: it shares prefixes only within it
    adapter: bytes = b""  # the identity of its LoRA adapter; b"": the base model
    deadline: float = math.inf  # the scheduler's clock, seconds
    grammar: OutputGrammar | None = None
    hit_when_queued: int = 0  # tokens that were cached when it joined the queue
    unencoded_when_queued: int = 0  # positions of its source, if that was not cached then
    source: SourceSpan | None = None  # of an encoder-decoder
    is_source_cached: bool | None = None  # when it was first admitted
    probe: Probe | None = None
    alignment: Alignment | None = None  # of one that produces no token
    aligned: list[Float32] = field(default_factory=list)  # [heads, tokens, positions], so far
    # The first of its tokens that are verified, in one that produces no token: those that the model
    # chooses behind each of them, and behind the one before, are its answer.
    verified_from: int | None = None
    choices: list[tuple[int, float]] = field(default_factory=list)  # with log-probabilities, so far
    rules: SpeechRules | None = None  # whose state is its grammar
    images: tuple[ImageSpan, ...] = ()  # whose tokens in `ids` are those of memory/image_ids.py

    cached_len: int = 0
    unseen: int = 0  # tokens that launched steps sample for it, not known yet
    in_flight: int = 0  # launched steps that run a part of it
    stale: bool = False  # the next of these steps runs a token that a jump has replaced
    cached_prompt_tokens: int | None = None  # cache hit when it was first admitted
    queue_seconds: float | None = None  # until it was first admitted; None again once reported
    place: int = 0  # in the queue, among equals; the lowest is in front
    ending: Ending | None = None
    pooled: Float32 | None = None  # of its hidden states so far, [hidden_size]
    # Of the prompt tokens scored so far; sent with the first output.
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    probed: list[float] = field(default_factory=list)  # likewise, of the probed tokens

    # Of its adapter in device memory, from its first admission to its end; -1: none, or the base.
    slot: int = -1

    # Held while the request is admitted; set by the KVManager.
    row: int = -1  # in the ReqToTokenPool
    num_pages: int = 0  # pages in that row
    node: TreeNode | None = None  # where its cached prefix ends; locked, so that it stays
    source_node: TreeNode | None = None  # its source in the radix cache, locked
    # The range of these pages whose window pages it has pinned; see `WindowPages`.
    window_first: int = 0
    window_end: int = 0

    def image_around(self, end: int) -> ImageSpan | None:
        """The image that may not be cut, but would be by a step that ends before token `end`."""
        return next((i for i in self.images if i.is_whole and i.start < end < i.end), None)

    @property
    def array_bytes(self) -> int:
        """Of its images and its source."""
        images = sum(array.nbytes for image in self.images for array in image.arrays.values())
        return images + (self.source.array.nbytes if self.source else 0)

    @property
    def shift(self) -> int:
        """What its images add to the rotary positions of all tokens behind them."""
        return sum(image.shift for image in self.images)

    @property
    def tree_tokens(self) -> int:
        """Its leading tokens whose pages the radix cache owns."""
        return 0 if self.node is None else self.node.end

    @property
    def num_tokens(self) -> int:
        return self.num_known + self.unseen

    @property
    def num_output(self) -> int:
        """Tokens that it has produced, or that launched steps sample for it."""
        return self.num_tokens - self.prompt_len

    @property
    def is_admitted(self) -> bool:
        return self.node is not None

    @property
    def extend_len(self) -> int:
        """Tokens that have to run before the next one can be sampled."""
        return self.num_tokens - self.cached_len

    @property
    def has_jumped(self) -> bool:
        """Whether its grammar has just forced tokens, which run next."""
        return self.grammar is not None and (self.stale or self.num_known > self.cached_len + 1)

    @property
    def remaining_tokens(self) -> int:
        """Tokens it may still produce."""
        return len(self.ids) - self.num_tokens

    @property
    def first_score(self) -> int:
        """The first prompt position whose log-probability is still wanted; len(ids) for none."""
        if self.logprobs is None or self.logprobs.prompt_start is None or self.num_output:
            return len(self.ids)
        return max(1, self.logprobs.prompt_start)

    @property
    def is_plain(self) -> bool:
        """Whether its results are only tokens, and only their number ends it."""
        return not (
            self.sampling.stop_token_ids or self.grammar or self.logprobs or self.makes_no_token
        )

    @property
    def work_when_queued(self) -> int:
        """Tokens, and positions of its source, that it had to compute when it joined the queue."""
        return self.num_tokens - self.hit_when_queued + self.unencoded_when_queued

    @property
    def makes_no_token(self) -> bool:
        """Whether its prompt is all that runs."""
        kinds = self.pooling, self.alignment, self.verified_from
        return any(kind is not None for kind in kinds)

    @property
    def matchable(self) -> int:
        """Leading tokens that may come from the cache. The last token always runs, since its logits
        yield the next one, and so does the token before each prompt token to be scored. Pooling
        runs all tokens, unless it takes the last one's state."""
        if self.pooling not in (None, Pooling.LAST):
            return 0
        end = min(self.num_known, self.first_score)
        if self.probe is not None and not self.num_output:
            end = min(end, self.probe.position + 1)
        if self.alignment is not None:
            end = min(end, self.alignment.first + 1)
        if self.verified_from is not None:
            end = min(end, self.verified_from)
        return end - 1

    def tokens(self, end: int) -> Tokens:
        """The first `end` tokens, a view of [end]; these must be known."""
        assert end <= self.num_known
        return self.ids[:end]

    def run_ahead(self, token: int, steps: int) -> None:
        """Apply `steps` steps that ran one token each and sampled `token` each time."""
        end = self.num_known + steps
        self.ids[self.num_known : end] = token
        self.num_known = end
        self.cached_len += steps

    def take_back(self) -> None:
        """Drop the last known token, and the token that a launched step may sample after it.

        The token that replaces it runs later; its keys and values overwrite those of the launched
        step, since steps run in order.
        """
        self.num_known -= 1
        self.cached_len = min(self.cached_len, self.num_known)
        self.unseen = 0
        self.stale = self.in_flight > 0

    @property
    def next_token(self) -> int:
        """The first token to run; -1 - row if it is not known yet."""
        if self.cached_len >= self.num_known:
            return -1 - self.row
        return int(self.pending(1)[0] if self.images else self.ids[self.cached_len])

    def pending(self, count: int) -> Tokens:
        """The next `count` tokens to run, [count], all of them known."""
        end = self.cached_len + count
        assert end <= self.num_known
        return self.vocabulary_ids(end)[self.cached_len :]

    def vocabulary_ids(self, end: int) -> Tokens:
        """The first `end` tokens, [end], with the vocabulary's image token for those of images."""
        ids = self.tokens(end)
        if self.images:
            ids = ids.copy()
            for image in self.images:
                part = ids[image.start : image.end]
                part[part >= FIRST_ID] = image.token
        return ids
