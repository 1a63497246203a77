"""Who owns which KV page, on the device and on the host.

Read in this order:
    page_allocator.py  the free list of the KV pool
    req_pool.py        which slot holds a request's position
    radix_cache.py     the prefixes that are kept
    tree_node.py       an edge of its tree
    namespace.py       parts of it that share no prefix
    eviction.py        which prefix goes first
    ghost_list.py      recognizes what was evicted and is asked for again
    host_tier.py       evicted prefixes in host memory
    places.py          where a prefix lies
    copy_queue.py      copies that wait for the next batch
    window_pages.py    pages for layers that see only a window
    window_sight.py    which of them a request sees
    host_windows.py    window pages on the host

Imports `batch` only; the scheduler's `kv_manager.py` brings it together.
"""
