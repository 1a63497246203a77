"""Strides: decode steps taken many at a time, with the same state after them as one at a time.

Between two events a replica repeats one step: each running request gets its next token, and now and
then a page. As long as nobody waits or prefills, none of them ends and the free list has what they
need, all that a step does is known beforehand; what is left to be done is to add it up. Whatever
else may happen, such as an eviction, a retraction or an end, happens in a step of the scheduler.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

from pando_sim.worker.model import VirtualModel
from pando_worker.scheduler.kv_manager import KVManager
from pando_worker.scheduler.req import Req
from pando_worker.scheduler.scheduler import Scheduler

LONGEST = 128
"""Steps that are planned at once: an arrival may make them vain."""


class Stride:
    """Steps ahead of a scheduler, from now on; `take` makes them happen."""

    def __init__(self, borders: list[float], reqs: Sequence[Req]) -> None:
        self.start_s = borders[0]
        self.ends = borders[1:]  # of each step, in seconds
        self.reqs = reqs
        self._borders = borders
        self.taken = 0  # steps

    def border(self, at_s: float) -> float:
        """The first end of a step that is not before `at_s`; the last one where all are."""
        return self.ends[min(bisect_left(self.ends, at_s), len(self.ends) - 1)]

    def begun(self, at_s: float) -> int:
        """Steps that have begun before `at_s`, which is behind the start."""
        return min(bisect_left(self.ends, at_s) + 1, len(self.ends))

    def durations(self, first: int, last: int) -> list[float]:
        """Of the steps from `first` on, `last` excluded."""
        return [end_s - start_s for start_s, end_s in pairwise(self._borders[first : last + 1])]

    def take(self, scheduler: Scheduler, model: VirtualModel, until: int) -> None:
        """The steps before number `until` have happened."""
        count = until - self.taken
        if count <= 0:
            return
        _grow(scheduler.kv, self.reqs, count)
        for req in self.reqs:
            end = req.num_known + count
            req.ids[req.num_known : end] = req.sampling.seed
            req.num_known = end
            req.cached_len += count
        scheduler.planner.ratio.decay(count)
        scheduler.meter.add_decodes(len(self.reqs), self.durations(self.taken, until))
        model.now_s = self.ends[until - 1]
        self.taken = until


def plan_stride(scheduler: Scheduler, model: VirtualModel) -> Stride | None:
    """The steps that can be taken at once from here; None where the next one is no mere decode."""
    queues, kv = scheduler.planner, scheduler.kv
    reqs = queues.running
    if queues.waiting or queues.prefilling or not reqs:
        return None
    # The step that ends a request is the scheduler's.
    count = min(LONGEST, min(req.remaining_tokens for req in reqs) - 1)
    while count > 1 and _pages(kv, reqs, count) > kv.allocator.num_free:
        count //= 2
    if count < 2 or _pages(kv, reqs, count) > kv.allocator.num_free:
        return None
    seconds = model.decode_steps(count, len(reqs), sum(req.num_tokens for req in reqs))
    return Stride([*accumulate(seconds, initial=model.now_s)], tuple(reqs))


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
