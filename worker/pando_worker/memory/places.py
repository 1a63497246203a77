"""The pages of a cached prefix on the device, on the host, or on both."""

import numpy as np

from pando_worker.memory.page_allocator import Pages
from pando_worker.memory.radix_cache import RadixCache, Tokens, TreeNode
from pando_worker.memory.tree_node import common_prefix


def places_of(cache: RadixCache, key: Tokens, namespace: bytes = b"") -> tuple[Pages, Pages]:
    """The device's and the host's pages of the longest cached prefix of `key`, in order; -1 where
    it has none. Changes nothing."""
    path = cache.path(key, namespace)[1:]
    if not path:
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
    last = path[-1]
    end = last.start + common_prefix(last.key, key[last.start :])
    device, host = (np.full(last.end // cache.page_size, -1, dtype=np.int32) for _ in range(2))
    for node in path:
        part = slice(node.start // cache.page_size, node.end // cache.page_size)
        if node.pages is not None:
            device[part] = node.pages
        if node.host_pages is not None:
            host[part] = node.host_pages
    return device[: end // cache.page_size], host[: end // cache.page_size]


def host_pages_of(end: TreeNode, start: int, page_size: int) -> Pages:
    """The host's pages of a prefix from the token `start`, on a page boundary, to the end of the
    node `end`; -1 for none."""
    found: Pages = np.full((end.end - start) // page_size, -1, dtype=np.int32)
    for node in end.path_up():
        if node.host_pages is not None and node.end > start:
            skipped = max(0, start - node.start) // page_size
            at = (node.start - start) // page_size + skipped
            part = node.host_pages[skipped:]
            found[at : at + len(part)] = part
    return found
