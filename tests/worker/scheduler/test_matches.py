"""The kept matches of waiting requests equal those of a new search in the tree."""

import random

import numpy as np
import pytest

from pando_worker.memory.page_allocator import PageAllocator
from pando_worker.memory.radix_cache import RadixCache, Tokens, TreeNode
from pando_worker.memory.tree_node import walk
from pando_worker.messages import SamplingParams
from pando_worker.policies.eviction import EVICTION_POLICIES
from pando_worker.scheduler.planning.matches import Matches
from pando_worker.scheduler.req import Req

WHAT = ["add", "discard", "insert", "evict", "forget", "match", "reset"]
WEIGHTS = [60, 20, 60, 30, 10, 10, 1]


class Queue:
    """Matches, and the requests that they belong to."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.page_size = rng.choice([1, 2, 3])
        self.allocator = PageAllocator(40)
        self.cache = RadixCache(
            self.allocator,
            self.page_size,
            policy=rng.choice([*EVICTION_POLICIES]),
            block_tokens=self.page_size,
        )
        self.changed: list[Req] = []
        self.matches = Matches(self.cache, self.changed.append)
        self.reqs: list[Req] = []
        self.sent = 0

    def act(self) -> None:
        rng, cache = self.rng, self.cache
        match rng.choices(WHAT, WEIGHTS):
            case ["add"]:
                self.reqs.append(self.request())
                self.matches.add(self.reqs[-1])
            case ["discard"] if self.reqs:
                self.matches.discard(self.reqs.pop(rng.randrange(len(self.reqs))))
            case ["insert"]:
                key = self.tokens()
                count = len(key) // self.page_size
                cache.evict(count - self.allocator.num_free)
                pages = self.allocator.alloc(count)
                self.allocator.free(pages[: cache.insert(key, pages, self.namespace()).known])
            case ["evict"]:
                cache.evict(rng.randint(1, 5))
            case ["forget"]:
                cache.forget(self.tokens(), rng.randint(0, 3) * self.page_size, self.namespace())
            case ["match"]:
                cache.match_prefix(self.tokens(), self.namespace())
            case ["reset"]:
                cache.reset()

    def request(self) -> Req:
        self.sent += 1
        prompt = self.tokens()
        return Req(
            rid=str(self.sent),
            ids=np.concatenate([prompt, np.zeros(4, dtype=np.int32)]),
            num_known=len(prompt),
            prompt_len=len(prompt),
            sampling=SamplingParams(max_new_tokens=4),
            arrival=self.sent,
            queued_at=0.0,
            namespace=self.namespace(),
        )

    def tokens(self) -> Tokens:
        count = self.rng.randint(1, 8) * self.page_size
        return np.array(self.rng.choices([1, 2], k=count), dtype=np.int32)

    def namespace(self) -> bytes:
        return self.rng.choice([b"", b"other   "])


@pytest.mark.parametrize("seed", range(60))
def test_matches_are_what_a_new_look_would_find(seed: int) -> None:
    queue = Queue(random.Random(seed))
    matches = queue.matches
    for _ in range(200):
        before = {req: matches.hit(req) for req in queue.reqs}
        queue.changed.clear()
        queue.act()
        left = [req for req in before if req in queue.reqs]
        assert {req for req in left if matches.hit(req) != before[req]} <= set(queue.changed)
        check(queue)


def check(queue: Queue) -> None:
    weight: dict[TreeNode, int] = {}
    cache, matches = queue.cache, queue.matches
    for req in queue.reqs:
        key = req.tokens(req.matchable)
        path = [node for node, _ in walk(cache.root, key, queue.page_size, req.namespace)]
        hit = matches.hit(req)
        assert hit == cache.prefix_len(key, req.namespace)
        assert matches.node_at(req, hit) is (path[-1] if path else cache.root)
        for node in path:
            weight[node] = weight.get(node, 0) + 1
    order = list(matches.by_branch())
    assert len(order) == len(queue.reqs)
    assert set(order) == set(queue.reqs)
    assert matches._weight == weight
    if order and weight:
        # Requests without a match are first, then the branch with the most requests.
        first = next(req for req in order if matches.hit(req))
        top = matches.node_at(first, 1)
        heaviest = max(count for node, count in weight.items() if node.parent is cache.root)
        assert weight[top] == heaviest
