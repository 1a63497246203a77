"""Prefix sharing among requests that wait together.

Of several waiting requests with a common prefix that is not cached, only the first should compute
it. What is being computed is known by keys: a request whose leading `tree_pages` pages are cached
computes the pages after them, so its key is its tokens up to a little beyond that. A waiting
request that has the same tokens up to there has the same pages cached and would compute the same
next ones: it is better off waiting for the chunk in progress.
"""

from collections.abc import Iterable

from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.req import Req

# Sharing fewer tokens is not worth a step's delay.
MIN_TOKENS = 32


class Computing:
    """Prefixes that admitted requests are about to compute."""

    def __init__(self, prefilling: Iterable[Req], kv: KVManager) -> None:
        self._kv = kv
        self._page_size = kv.page_size
        self._beyond = -(-MIN_TOKENS // self._page_size) * self._page_size
        self._keys: set[bytes] = set()  # asked for membership alone, so its order does not matter
        for req in prefilling:
            self.add(req)

    def add(self, req: Req) -> None:
        """An admitted request computes what follows its cached pages."""
        if self._kv.cache.enabled and (key := self._key(req, req.tree_pages * self._page_size)):
            self._keys.add(key)

    def shares(self, req: Req) -> bool:
        """Whether a waiting request would compute the same again."""
        if not self._keys:
            return False
        hit = self._kv.prefix_len(req.tokens(req.matchable), req.namespace)
        key = self._key(req, hit)
        return key is not None and key in self._keys

    def _key(self, req: Req, cached: int) -> bytes | None:
        end = cached + self._beyond
        # The last token of a prompt is never matched, so what ends with it cannot be shared.
        return req.namespace + req.tokens(end).tobytes() if end < req.num_known else None
