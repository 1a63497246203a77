"""The order in which waiting requests are considered for admission.

Every policy is bounded: a request that too many later ones have overtaken goes first.
"""

import random
from collections.abc import Callable, Sequence

from pando_worker.memory.radix_cache import RadixCache, TreeNode
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.req import Req

# In a long queue, matching every waiting request costs more than the order gains.
MAX_MATCHED = 128

Policy = Callable[[Sequence[Req]], list[Req]]
"""Orders the queue; its input is ordered by arrival, with retracted requests in front."""


def make_policy(name: str, kv: KVManager, max_passed_over: int) -> Policy:
    orders: dict[str, Policy] = {
        "lpm": lambda waiting: _by_match(waiting, kv),
        "dfs-weight": lambda waiting: _by_branch(waiting, kv.cache),
        "fcfs": list,
        "random": _Shuffle(),
        "priority": lambda waiting: sorted(waiting, key=lambda req: -req.priority),
    }
    order = orders[name]
    if name in ("lpm", "dfs-weight") and not kv.cache.enabled:
        order = list

    def bounded(waiting: Sequence[Req]) -> list[Req]:
        starving = [req for req in waiting if req.passed_over > max_passed_over]
        if not starving:
            return order(waiting)
        others = [req for req in waiting if req.passed_over <= max_passed_over]
        return starving + order(others)

    return bounded


class _Shuffle:
    """Random, but the same order in every run, so that decisions are reproducible."""

    def __init__(self) -> None:
        self._random = random.Random(0)

    def __call__(self, waiting: Sequence[Req]) -> list[Req]:
        return self._random.sample(waiting, len(waiting))


def _by_match(waiting: Sequence[Req], kv: KVManager) -> list[Req]:
    """Longest cached prefix first, so that a prefix is used before it is evicted."""
    if len(waiting) > MAX_MATCHED:
        return list(waiting)

    def cached(req: Req) -> int:
        return kv.prefix_len(req.tokens(req.matchable), req.namespace)

    return sorted(waiting, key=lambda req: -cached(req))


def _by_branch(waiting: Sequence[Req], cache: RadixCache) -> list[Req]:
    """Depth first through the prefix tree, the branch with the most waiting requests first
    (SGLang's dfs-weight), so that requests that share a prefix run together."""
    if len(waiting) > MAX_MATCHED:
        return list(waiting)
    here: dict[TreeNode, list[Req]] = {}
    weight: dict[TreeNode, int] = {}
    for req in waiting:
        path = cache.path(req.tokens(req.matchable), req.namespace)
        here.setdefault(path[-1], []).append(req)
        for node in path:
            weight[node] = weight.get(node, 0) + 1
    ordered: list[Req] = []
    stack = [cache.root]
    while stack:
        node = stack.pop()
        ordered += here.get(node, [])
        children = [child for child in node.children.values() if child in weight]
        stack += sorted(children, key=lambda child: weight[child])
    return ordered
