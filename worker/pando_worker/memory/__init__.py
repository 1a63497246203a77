"""The owner of each KV page, on the device and on the host.

Read in this order:
    page_allocator.py  the free list of the KV pool
    req_pool.py        the page table of the running requests
    radix_cache.py     the cached prefixes by their tokens
    evictable_tree.py  locks, evicts and frees the nodes of their tree
    tree_node.py       an edge of that tree
    namespace.py       parts of the cache that share no prefix
    image_ids.py       token ids that stand for images
    ghost_list.py      recognizes evicted prefixes that are requested again
    host_tier.py       evicted prefixes in host memory
    places.py          the device and host pages of a prefix
    copy_queue.py      copies that wait for the next batch
    window_pages.py    pages for layers with a sliding window
    window_sight.py    which of them a request attends to
    host_windows.py    window pages on the host
    adapter_slots.py   which LoRA adapters are in device memory

Which prefix is evicted first is in `policies/eviction/`. Imports that and `batch`; the scheduler's
`kv_manager.py` combines them.
"""
