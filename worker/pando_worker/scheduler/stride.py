"""`Stride`: takes many steps of a scheduler at once, with the same state after them.

Between two events a scheduler repeats one step: each running request gets its next token, now and
then a page, and a prompt that is longer than a step computes its next chunk. While no request is
admitted or ends, no prompt is completed, and the free list has the pages (so that nothing is
evicted or retracted), a step's changes are predictable except for its tokens and its duration. The
fleet simulator knows these, so it need not launch the steps.
"""

from collections.abc import Sequence

from pando_worker.memory.tree_node import edge
from pando_worker.scheduler.batches.context_cost import attended
from pando_worker.scheduler.meter import Meter
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.planning.planner import Planner
from pando_worker.scheduler.planning.prompts import LONGER
from pando_worker.scheduler.planning.waiting import WaitingQueue
from pando_worker.scheduler.req import Req


class Stride:
    """The next steps of a scheduler; invalid once anything else has changed the scheduler.

    Like a single step, each is launched first, and its result taken later.

    Attributes:
        reqs: the requests that get a token in each step
        chunk: tokens of the prompt that each step computes, whole pages; 0 without a prompt
        steps: how many there are
        taken_in: how many of their results have been taken
    """

    def __init__(
        self,
        planner: Planner,
        kv: KVManager,
        meter: Meter,
        *,
        reqs: Sequence[Req],
        prompt: Req | None,
        chunk: int,
        steps: int,
    ) -> None:
        self.reqs = reqs
        self.chunk = chunk
        self.steps = steps
        self.taken_in = 0
        self._planner = planner
        self._kv = kv
        self._meter = meter
        self._prompt = prompt
        self._first = prompt.cached_len if prompt else 0  # where the first chunk begins
        self._launched = 0

    @property
    def decode_context(self) -> int:
        """The sum of the context lengths of `reqs` in the next step; each grows by one per step."""
        return sum(req.num_tokens for req in self.reqs)

    def chunk_contexts(self, count: int) -> list[int]:
        """The sum of the prompt tokens' context lengths in each of the next `count` steps."""
        if self._prompt is None:
            return []
        steps = range(self.taken_in, self.taken_in + count)
        return [attended(self._first + step * self.chunk, self.chunk) for step in steps]

    def launch(self, until: int) -> None:
        """Launch the steps before number `until`: allocates what their requests need to run."""
        count = until - self._launched
        if count <= 0:
            return
        if self.reqs:
            _grow_ahead(self._kv, self.reqs, until - self.taken_in)
            self._planner.ratio.decay(count)
            self._planner.decodes.refresh()
        if self._prompt is not None:
            self._prompt.cached_len = self._first + until * self.chunk
        self._launched = until

    def take_in(self, until: int, tokens: Sequence[int], seconds: Sequence[float]) -> None:
        """Take the results of the steps before number `until`, launching those that are not. This
        leaves the scheduler in the same state as that many calls of `step`, which would have
        returned the tokens.

        Args:
            tokens: for each of `reqs`, the token that every one of these steps sampled.
            seconds: the duration of each of these steps.
        """
        count = until - self.taken_in
        assert count == len(seconds), (count, len(seconds))
        self.launch(until)
        for req, token in zip(self.reqs, tokens, strict=True):
            req.run_ahead(token, count)
        self._planner.decodes.refresh()
        contexts = self.chunk_contexts(count)
        if self._prompt is not None:
            for step in range(self.taken_in, until):  # each chunk gets its own place in the tree
                self._prompt.cached_len = self._first + (step + 1) * self.chunk
                self._kv.cache_unfinished_req(self._prompt)
            self._prompt.cached_len = self._first + self._launched * self.chunk
        self._meter.add_steps(
            decodes=len(self.reqs),
            prefill_tokens=self.chunk,
            prefill_contexts=contexts,
            seconds=seconds,
        )
        self.taken_in = until


def plan_stride(planner: Planner, kv: KVManager, meter: Meter, most: int) -> Stride | None:
    """The stride of a scheduler with nothing in flight, to end or to compile, and no deadline."""
    reqs, prompt, chunk, steps = tuple(planner.decodes.reqs), None, 0, most
    if kv.sliding is not None:
        return None
    if planner.prefilling:
        prompt = planner.prefilling[0]
        reqs = () if planner.prefill_first else reqs
        chunk, steps = _chunks(planner, kv, prompt, len(reqs))
        steps = min(steps, most)
    elif planner.waiting or not reqs:
        return None
    if reqs:
        # The step that ends a request is not part of the stride.
        steps = min(steps, min(req.remaining_tokens for req in reqs) - 1)
    while steps > 1 and _lacking(kv, reqs, steps) > kv.allocator.num_free:
        steps //= 2
    if steps < 2 or not all(req.is_plain for req in planner.running):
        return None
    return Stride(planner, kv, meter, reqs=reqs, prompt=prompt, chunk=chunk, steps=steps)


def _lacking(kv: KVManager, reqs: Sequence[Req], steps: int) -> int:
    """Pages that admitted requests lack to run `steps` steps of one token each."""
    return sum(kv.pages_for(req.num_tokens + steps - 1) - req.num_pages for req in reqs)


def _grow_ahead(kv: KVManager, reqs: Sequence[Req], steps: int) -> None:
    """Allocate at once what `KVManager.grow` would allocate before each of `steps` steps of one
    token: the same pages in the same order. Nothing may have to be evicted, and no layer may have
    window pages.

    Raises:
        MemoryError: fewer than `_lacking` are free.
    """
    size = kv.page_size
    wants: list[tuple[int, int]] = []  # step, request
    for index, req in enumerate(reqs):
        first = req.num_pages * size - req.num_tokens + 1
        wants += [(step, index) for step in range(first, steps, size)]
    if not wants:
        return
    wants.sort()
    pages = kv.take_pages(len(wants))
    for (_, index), page in zip(wants, pages.tolist(), strict=True):
        req = reqs[index]
        kv.rows.pages[req.row, req.num_pages] = page
        req.num_pages += 1


def _chunks(planner: Planner, kv: KVManager, prompt: Req, decodes: int) -> tuple[int, int]:
    """How many tokens of the first prompt each step computes, and for how many steps in a row it
    fills the budget, so that no other prompt continues or is admitted; 0 steps if unknown.
    """
    budget = planner.prompt_budget(decodes)
    chunk = budget // kv.page_size * kv.page_size
    # If another request has put the next page into the cache meanwhile, a step frees pages.
    if not prompt.is_plain or len(planner.prefilling) > 1 or _is_cached(kv, prompt):
        return chunk, 0
    if kv.rows.num_free and _is_passed(planner.waiting, prompt, kv):
        return chunk, 0
    return chunk, -(-max(0, prompt.extend_len - budget) // chunk)


def _is_passed(waiting: WaitingQueue, prompt: Req, kv: KVManager) -> bool:
    """Whether a waiting request may be admitted while `prompt` is computed: one that is short, or
    one that will be, since it shares what is computed."""
    assert prompt.node is not None
    return waiting.shortest <= prompt.extend_len // LONGER or waiting.matches.has_next(
        prompt.node, _next_page(kv, prompt)
    )


def _is_cached(kv: KVManager, req: Req) -> bool:
    """Whether the cache has the page that an admitted request computes next."""
    assert req.node is not None
    return _next_page(kv, req) in req.node.children


def _next_page(kv: KVManager, req: Req) -> bytes:
    """The edge to the page that an admitted request computes next."""
    assert req.node is not None
    page = edge(req.ids, req.cached_len, kv.page_size)
    return req.namespace + page if req.node.parent is None else page
