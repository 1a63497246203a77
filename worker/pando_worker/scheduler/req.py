"""`Req`: one request in the scheduler, as data.

A request is its tokens and one number: `cached_len`, how many of them have keys and values in the
pool. Whatever lies between `cached_len` and `num_tokens` has yet to be run: a whole prompt, what a
cache hit or a retraction left of it, or, in decode, just the last token.
"""

from dataclasses import dataclass, field

import numpy as np

from pando_worker.memory.radix_cache import Tokens, TreeNode
from pando_worker.messages import SamplingParams


@dataclass(slots=True, eq=False)
class Req:
    rid: str
    prompt: Tokens
    sampling: SamplingParams
    arrival: int  # a counter: orders requests that are otherwise equal
    hit_when_queued: int  # tokens that were cached when it joined the queue
    output: list[int] = field(default_factory=list)
    cached_len: int = 0
    cached_prompt_tokens: int | None = None  # hit when it was first admitted
    aborted: bool = False

    # Held while admitted, set by the KVManager.
    row: int = -1  # in the ReqToTokenPool
    num_pages: int = 0  # pages in that row
    tree_pages: int = 0  # of those, the leading ones that the radix cache owns
    node: TreeNode | None = None  # the lock on these

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + len(self.output)

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
        return self.sampling.max_new_tokens - len(self.output)

    def tokens(self, end: int) -> Tokens:
        """The first `end` tokens of prompt and output, [end]."""
        known = len(self.prompt)
        if end <= known:
            return self.prompt[:end]
        output = np.asarray(self.output[: end - known], dtype=np.int32)
        return np.concatenate((self.prompt, output))

    def pending(self, count: int) -> Tokens:
        """The next `count` tokens to run, [count]."""
        if count == 1 and self.extend_len == 1 and self.output:
            return np.asarray(self.output[-1:], dtype=np.int32)
        return self.tokens(self.cached_len + count)[self.cached_len :]
