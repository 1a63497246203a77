"""Which cached prefix is evicted first when the device's pages run out, a module for each policy.

Read in this order:
    order.py  what a policy is, and what it sees of a node
    lru.py    the least recently used
    lfu.py    the fewest hits
    fifo.py   the oldest

To add one, copy lru.py and list it here. The radix cache (`memory/radix_cache.py`) notifies an
order of every unlocked node on the device, and takes the leaf to evict from it.
"""

from pando_fleet.choices import by_name
from pando_worker.policies.eviction.fifo import FIFO
from pando_worker.policies.eviction.lfu import LFU
from pando_worker.policies.eviction.lru import LRU

EVICTION_POLICIES = by_name(LRU, LFU, FIFO)
