"""Prefix sharing among requests that wait together.

If several waiting requests have a common prefix that is not cached, only the first should compute
it. An admitted request computes the pages after its cached prefix: its key is the node where that
ends and a few tokens beyond. A waiting request with the same key would compute the same next pages,
so it waits for the chunk in progress. One that could not use these pages does not wait: a
mean-pooled prompt runs all its tokens, and a scored one those from its `prompt_start` on.
"""

from collections.abc import Iterable

from pando_worker.memory.radix_cache import TreeNode
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.planning.matches import Matches
from pando_worker.scheduler.req import Req

# Sharing fewer tokens is not worth a step's delay.
MIN_TOKENS = 32

Key = tuple[TreeNode, bytes]


class Computing:
    """Prefixes that admitted requests are about to compute."""

    def __init__(self, prefilling: Iterable[Req], kv: KVManager, matches: Matches) -> None:
        self._kv = kv
        self._matches = matches
        self._beyond = -(-MIN_TOKENS // kv.page_size) * kv.page_size
        self._keys: set[Key] = set()  # only membership is tested, so its order does not matter
        for req in prefilling:
            self.add(req)

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def add(self, req: Req) -> None:
        """Add the pages that an admitted request computes, those after its cached ones."""
        start = req.tree_tokens
        if self._kv.cache.enabled and start + self._beyond < req.num_known:
            assert req.node is not None
            self._keys.add(self._key(req, req.node, start))

    def shared_key(self, req: Req) -> Key | None:
        """The key of pages that a waiting request would compute again although it can soon match
        them; None if there are none."""
        if not self._keys:
            return None
        hit = self._matches.hit(req)
        if hit + self._beyond > req.matchable:
            return None
        key = self._key(req, self._matches.node_at(req, hit), hit)
        return key if key in self._keys else None

    def _key(self, req: Req, node: TreeNode, start: int) -> Key:
        # Without a cached prefix the node is the root, which all namespaces share.
        return node, req.namespace + req.ids[start : start + self._beyond].tobytes()
