"""Strides: steps taken many at a time, with the same state after them as one at a time.

Between two events a replica repeats one step: each running request gets its next token, and now and
then a page, and a prompt that is longer than a step computes its next chunk. As long as nobody is
admitted, no request and no prompt ends and the free list has what they need, all that a step does
is known beforehand; what is left to be done is to add it up. Whatever else may happen, such as an
eviction, a retraction or an end, happens in a step of the scheduler.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from pando_sim.worker.model import VirtualModel, Work
from pando_worker.memory.tree_node import edge
from pando_worker.scheduler.context_cost import attended
from pando_worker.scheduler.kv_manager import KVManager
from pando_worker.scheduler.req import Req
from pando_worker.scheduler.scheduler import Scheduler

LONGEST = 128
"""Steps that are planned at once: an arrival may make them vain."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Of a prompt, one in each step of a stride."""

    req: Req
    tokens: int  # of each, whole pages

    def contexts(self, count: int) -> list[int]:
        """What the tokens of each of the next `count` see, summed."""
        first = self.req.cached_len
        return [attended(first + step * self.tokens, self.tokens) for step in range(count)]


class Stride:
    """Steps ahead of a scheduler, from now on; `take` makes them happen."""

    def __init__(self, borders: list[float], reqs: Sequence[Req], chunks: Chunks | None) -> None:
        self.start_s = borders[0]
        self.ends = borders[1:]  # of each step, in seconds
        self.reqs = reqs  # that get a token in each
        self.chunks = chunks
        self._borders = borders
        self._launched = 0  # steps
        self.taken = 0  # steps whose results are in, too

    def border(self, at_s: float) -> float:
        """The first end of a step that is not before `at_s`; the last one where all are."""
        return self.ends[min(bisect_left(self.ends, at_s), len(self.ends) - 1)]

    def begun(self, at_s: float) -> int:
        """Steps that have begun before `at_s`, which is behind the start."""
        return min(bisect_left(self.ends, at_s) + 1, len(self.ends))

    def span(self, step: int) -> tuple[float, float]:
        """When a step begins and ends."""
        return self._borders[step], self._borders[step + 1]

    def durations(self, first: int, last: int) -> list[float]:
        """Of the steps from `first` on, `last` excluded."""
        return [end_s - start_s for start_s, end_s in pairwise(self._borders[first : last + 1])]

    def launch(self, scheduler: Scheduler, until: int) -> None:
        """The steps before number `until` have begun: what they need has been given out."""
        count = until - self._launched
        if count <= 0:
            return
        if self.reqs:
            _grow(scheduler.kv, self.reqs, until - self.taken)
            scheduler.planner.ratio.decay(count)
        self._launched = until

    def take(self, scheduler: Scheduler, model: VirtualModel, until: int) -> None:
        """The steps before number `until` have happened."""
        count = until - self.taken
        if count <= 0:
            return
        self.launch(scheduler, until)
        for req in self.reqs:
            end = req.num_known + count
            req.ids[req.num_known : end] = req.sampling.seed
            req.num_known = end
            req.cached_len += count
        contexts: list[int] = []
        if self.chunks is not None:
            contexts = self.chunks.contexts(count)
            _compute(scheduler.kv, self.chunks, count)
        scheduler.meter.add_steps(
            decodes=len(self.reqs),
            prefill_tokens=self.chunks.tokens if self.chunks is not None else 0,
            prefill_contexts=contexts,
            seconds=self.durations(self.taken, until),
        )
        model.now_s = self.ends[until - 1]
        self.taken = until


def plan_stride(scheduler: Scheduler, model: VirtualModel) -> Stride | None:
    """The steps that can be taken at once from here; None where the next one is none of these."""
    queues, kv = scheduler.planner, scheduler.kv
    reqs, chunks, count = tuple(queues.running), None, LONGEST
    if queues.prefilling:
        reqs = () if queues.prefill_first else reqs
        chunks, count = _chunks(scheduler, queues.prefilling[0], len(reqs))
    elif queues.waiting or not reqs:
        return None
    if reqs:
        # The step that ends a request is the scheduler's.
        count = min(count, min(req.remaining_tokens for req in reqs) - 1)
    while count > 1 and _pages(kv, reqs, count) > kv.allocator.num_free:
        count //= 2
    if count < 2 or _pages(kv, reqs, count) > kv.allocator.num_free:
        return None
    context = sum(req.num_tokens for req in reqs)
    if chunks is None:
        seconds = model.decode_steps(count, len(reqs), context)
    else:
        seconds = _chunk_steps(model, count, chunks, len(reqs), context)
    return Stride([*accumulate(seconds, initial=model.now_s)], reqs, chunks)


def _chunks(scheduler: Scheduler, req: Req, decodes: int) -> tuple[Chunks, int]:
    """What the first of the prompts computes in each step, and in how many steps in a row there is
    room for nothing else, so that no other prompt goes on or is admitted; 0 where that is unknown.
    """
    kv = scheduler.kv
    budget = scheduler.planner.prompt_budget(decodes)
    chunks = Chunks(req, budget // kv.page_size * kv.page_size)
    # A chunk of one token may count as a decode. Where the cache has got the next page from another
    # request by now, a step gives pages back.
    if chunks.tokens == 1 or kv.sliding is not None or _is_cached(kv, req):
        return chunks, 0
    return chunks, min(LONGEST, -(-max(0, req.extend_len - budget) // chunks.tokens))


def _is_cached(kv: KVManager, req: Req) -> bool:
    """Whether the cache has the page that an admitted request computes next."""
    assert req.node is not None
    page = edge(req.ids, req.cached_len, kv.page_size)
    if req.node.parent is None:
        page = req.namespace + page
    return page in req.node.children


def _chunk_steps(
    model: VirtualModel, count: int, chunks: Chunks, decodes: int, decode_context: int
) -> list[float]:
    """Seconds of each step; `decode_context` is the first one's."""
    work = Work(chunks.tokens, 0, decodes, decode_context)
    seconds = []
    for context in chunks.contexts(count):
        work.prefill_context = context
        seconds.append(model.step_s(work))
        work.decode_context += decodes
    return seconds


def _compute(kv: KVManager, chunks: Chunks, count: int) -> None:
    """The next chunks are computed, and cached one by one: each gets its own place in the tree."""
    req = chunks.req
    for _ in range(count):
        req.cached_len += chunks.tokens
        kv.cache_unfinished_req(req, req.cached_len)


def _pages(kv: KVManager, reqs: Sequence[Req], count: int) -> int:
    """That requests lack for so many steps; each step needs room for what is known at its start."""
    return sum(kv.pages_for(req.num_tokens + count - 1) - req.num_pages for req in reqs)


def _grow(kv: KVManager, reqs: Sequence[Req], count: int) -> None:
    """Give requests the pages of so many steps, as these would: page by page, in turn."""
    size = kv.page_size
    wants: list[tuple[int, int]] = []  # step, request
    for index, req in enumerate(reqs):
        first = req.num_pages * size - req.num_tokens + 1
        wants += [(step, index) for step in range(first, count, size)]
    if not wants:
        return
    wants.sort()
    # The free list is a stack: pages taken one by one come in the other order.
    pages = kv.allocator.alloc(len(wants))[::-1]
    for (_, index), page in zip(wants, pages.tolist(), strict=True):
        req = reqs[index]
        kv.rows.pages[req.row, req.num_pages] = page
        req.num_pages += 1
