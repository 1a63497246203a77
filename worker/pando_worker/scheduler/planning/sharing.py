"""Prefix sharing among requests that wait together.

If several waiting requests have a common prefix that is not cached, only the first should compute
it. A key identifies the prefix in progress: a request whose leading `tree_pages` pages are cached
computes the pages after them, so its key is its tokens up to a little beyond that. A waiting
request with the same tokens up to there has the same pages cached and would compute the same next
ones: it should wait for the chunk in progress.
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
        self._keys: set[bytes] = set()  # only membership is tested, so its order does not matter
        for req in prefilling:
            self.add(req)

    def add(self, req: Req) -> None:
        """Add the pages that an admitted request computes, those after its cached ones."""
        if self._kv.cache.enabled and (key := self._key(req, req.tree_pages * self._page_size)):
            self._keys.add(key)

    def shares(self, req: Req) -> bool:
        """Whether a waiting request would compute the same pages again."""
        if not self._keys:
            return False
        hit = self._kv.prefix_len(req.tokens(req.matchable), req.namespace)
        key = self._key(req, hit)
        return key is not None and key in self._keys

    def _key(self, req: Req, cached: int) -> bytes | None:
        end = cached + self._beyond
        # The last token of a prompt is never matched, so a key that ends with it is shared by none.
        return req.namespace + req.tokens(end).tobytes() if end < req.num_known else None
