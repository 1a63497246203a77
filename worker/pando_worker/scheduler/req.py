"""`Req`: one request in the scheduler, as data.

A request is its tokens and one number: `cached_len`, how many of them have keys and values in the
pool. Whatever lies between `cached_len` and `num_tokens` has yet to be run: a whole prompt, what a
cache hit or a retraction left of it, or, in decode, just the last token.

A step is launched before the one before it has told its tokens, so both numbers run ahead of what
is known: `cached_len` counts what launched steps will have computed, `unseen` what they will yield.

    ids      0 ........... len(prompt) ........... num_known ........... num_tokens
             prompt         output that is known    sampled, not seen yet
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pando_worker.memory.radix_cache import Tokens, TreeNode
from pando_worker.messages import LogprobsWanted, Pooling, SamplingParams, TokenLogprob

Float32 = NDArray[np.float32]


class Grammar(Protocol):
    """What a request's output has to follow, and how far it has come."""

    @property
    def is_finished(self) -> bool:
        """Nothing but an end-of-sequence token may follow."""
        ...

    def accept(self, token: int) -> bool:
        """Go on by a token; False, and nothing has changed, where it is not allowed."""
        ...

    def rollback(self, count: int) -> None:
        """Take back the last accepted tokens."""
        ...

    def fast_forward(self) -> list[int]:
        """The tokens that have to come next, as far as there is no choice; may be none."""
        ...

    def spell(self, tokens: Sequence[int]) -> list[int]:
        """The tokenizer's own tokens of the text of these."""
        ...


class Ending(Enum):
    """Why a request runs no further; it holds its pages until no launched step needs them."""

    FINISHED = auto()  # and has been answered
    FAILED = auto()  # and has been answered; what it computed last is not to be kept
    ABORTED = auto()  # to be answered when it lets its pages go
    LATE = auto()  # its deadline passed; likewise


@dataclass(slots=True, eq=False)
class Req:
    rid: str
    ids: Tokens  # [prompt and max_new_tokens]: room for all tokens it may ever have
    num_known: int  # of these, how many are known: prompt and output
    prompt_len: int
    sampling: SamplingParams
    arrival: int  # a counter: orders requests that are otherwise equal
    hit_when_queued: int  # tokens that were cached when it joined the queue
    queued_at: float  # the scheduler's clock, seconds
    logprobs: LogprobsWanted | None = None
    pooling: Pooling | None = None  # it is embedded, and produces no token
    priority: int = 0
    namespace: bytes = b""  # of the radix cache: it shares prefixes within it alone
    deadline: float = math.inf  # the scheduler's clock
    grammar: Grammar | None = None

    cached_len: int = 0
    unseen: int = 0  # tokens that launched steps sample for it
    in_flight: int = 0  # launched steps that run a part of it
    stale: bool = False  # the next of these to end runs a token that a jump has replaced
    cached_prompt_tokens: int | None = None  # hit when it was first admitted
    queue_seconds: float | None = None  # until it was first admitted; until it was told
    passed_over: int = 0  # later requests that were admitted while it waited
    ending: Ending | None = None
    pooled: Float32 | None = None  # what its hidden states add up to so far, [hidden_size]
    # Of the prompt tokens scored so far; handed over with the first output.
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)

    # Held while admitted, set by the KVManager.
    row: int = -1  # in the ReqToTokenPool
    num_pages: int = 0  # pages in that row
    tree_pages: int = 0  # of those, the leading ones that the radix cache owns
    node: TreeNode | None = None  # the lock on these
    # Of these pages, the ones that it has pinned for layers with a window; see `WindowPages`.
    window_first: int = 0
    window_end: int = 0

    @property
    def num_tokens(self) -> int:
        return self.num_known + self.unseen

    @property
    def num_output(self) -> int:
        """Tokens it has produced or is about to."""
        return self.num_tokens - self.prompt_len

    @property
    def is_admitted(self) -> bool:
        return self.node is not None

    @property
    def extend_len(self) -> int:
        """Tokens that have to run before the next one can be sampled."""
        return self.num_tokens - self.cached_len

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
        """Whether its results are tokens alone, and only their number ends it."""
        return not (self.sampling.stop_token_ids or self.grammar or self.logprobs or self.pooling)

    @property
    def matchable(self) -> int:
        """Leading tokens that may come from the cache. The last token is always run, since its
        logits yield the next one, and so is each before a prompt token that is to be scored. A mean
        needs them all."""
        if self.pooling is Pooling.MEAN:
            return 0
        return min(self.num_known, self.first_score) - 1

    def tokens(self, end: int) -> Tokens:
        """The first `end` tokens, a view of [end]; these must be known."""
        assert end <= self.num_known
        return self.ids[:end]

    def append(self, token: int) -> None:
        self.ids[self.num_known] = token
        self.num_known += 1

    def run_ahead(self, token: int, steps: int) -> None:
        """So many steps ran one token each, and sampled this one each time."""
        end = self.num_known + steps
        self.ids[self.num_known : end] = token
        self.num_known = end
        self.cached_len += steps

    def take_back(self) -> None:
        """Forget the last known token, and what a launched step may sample behind it.

        What takes its place is run; its keys and values are written over those that the launched
        step writes, since steps run in order.
        """
        self.num_known -= 1
        self.cached_len = min(self.cached_len, self.num_known)
        self.unseen = 0
        self.stale = self.in_flight > 0

    @property
    def next_token(self) -> int:
        """The first token to run; -1 - row where it is not known yet."""
        return int(self.ids[self.cached_len]) if self.cached_len < self.num_known else -1 - self.row

    def pending(self, count: int) -> Tokens:
        """The next `count` tokens to run, [count], all of them known."""
        end = self.cached_len + count
        assert end <= self.num_known
        return self.ids[self.cached_len : end]
