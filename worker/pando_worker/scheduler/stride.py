"""`Stride`: takes many steps of a scheduler at once, with the same state after them.

Between two events a scheduler repeats one step: each running request gets its next token, now and
then a page, and the prompts that are longer than a step compute their next chunks. While no request
is admitted, ends or is retracted, and no prompt is completed, a step's changes are predictable
except for its tokens and its duration. The fleet simulator knows these, so it need not launch the
steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from pando_worker.memory.tree_node import TreeNode, edge
from pando_worker.scheduler.batches.context_cost import attended
from pando_worker.scheduler.batches.decodes import Decodes
from pando_worker.scheduler.meter import Meter
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.planning.planner import Planner
from pando_worker.scheduler.planning.prompts import PromptBudget, shares_of
from pando_worker.scheduler.planning.waiting import WaitingQueue
from pando_worker.scheduler.req import Req


@dataclass(frozen=True, slots=True)
class Chunks:
    """What each step of a stride computes of a prompt."""

    req: Req
    first: int  # where the first chunk begins
    tokens: int  # of each, whole pages

    def end(self, step: int) -> int:
        """Where the chunk of a step ends."""
        return self.first + (step + 1) * self.tokens

    def context(self, step: int) -> int:
        """The sum of the context lengths that the chunk's tokens attend to."""
        return attended(self.first + step * self.tokens, self.tokens)


class Stride:
    """The next steps of a scheduler; invalid once anything else has changed the scheduler.

    Like a single step, each is launched first, and its result taken later.

    Attributes:
        reqs: the requests that get a token in each step
        prompts: what each step computes of prompts, in the order of its rows
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
        prompts: Sequence[Chunks],
        steps: int,
        evicts: bool,
    ) -> None:
        """
        Args:
            evicts: whether some of the steps evict cached pages
        """
        self.reqs = reqs
        self.prompts = prompts
        self.steps = steps
        self.taken_in = 0
        self._planner = planner
        self._kv = kv
        self._meter = meter
        self._evicts = evicts
        self._launched = 0

    @property
    def prompt_tokens(self) -> int:
        """Of each step."""
        return sum(chunks.tokens for chunks in self.prompts)

    @property
    def decode_context(self) -> int:
        """The sum of the context lengths of `reqs` in the next step; each grows by one per step."""
        return int(self._planner.decodes.num_tokens.sum()) if self.reqs else 0

    def prompt_contexts(self, count: int) -> list[int]:
        """The sum of the prompt tokens' context lengths in each of the next `count` steps; empty
        without prompts."""
        if not self.prompts:
            return []
        steps = range(self.taken_in, self.taken_in + count)
        return [sum(chunks.context(step) for chunks in self.prompts) for step in steps]

    def launch(self, until: int) -> None:
        """Launch the steps before number `until`: allocates what their requests need to run."""
        count = until - self._launched
        if count <= 0:
            return
        if self.reqs:
            _grow_ahead(self._kv, self._planner.decodes, until - self.taken_in)
            self._planner.ratio.decay(count)
        for chunks in self.prompts:
            chunks.req.cached_len = chunks.end(until - 1)
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
        contexts = self.prompt_contexts(count)
        if self.prompts:
            self._compute_prompts(until)
        self.launch(until)
        if self.reqs:
            self._planner.decodes.run_ahead(tokens, count)
        self._meter.add_steps(
            rows=len(self.reqs) + len(self.prompts),
            decodes=len(self.reqs),
            prefill_tokens=self.prompt_tokens,
            prefill_contexts=contexts,
            seconds=seconds,
        )
        self.taken_in = until

    def _compute_prompts(self, until: int) -> None:
        """Put the chunks of the steps before number `until` into the cache. Each gets its own place
        in the tree, after what its step evicts."""
        for step in range(self.taken_in, until):
            if self._evicts:
                self.launch(step + 1)
            for chunks in self.prompts:
                self._kv.cache_unfinished_req(chunks.req, chunks.end(step))


def plan_stride(planner: Planner, kv: KVManager, meter: Meter, most: int) -> Stride | None:
    """The stride of a scheduler with nothing in flight, to end or to compile, and no deadline."""
    reqs, prompts, steps = tuple(planner.decodes.reqs), list[Chunks](), most
    if kv.sliding is not None:
        return None
    if planner.prefilling:
        reqs = () if planner.prefill_first else reqs
        prompts, steps = _chunks(planner, kv, len(reqs), most)
    elif not reqs:
        return None
    elif planner.waiting:
        steps = planner.steps_in_vain(most)
    if reqs:
        # The step that ends a request is not part of the stride.
        steps = min(steps, planner.decodes.fewest_left - 1)
    room = _room(planner, kv)
    while steps > 1 and reqs and planner.decodes.lacking_ahead(steps) > room:
        steps //= 2
    if steps < 2 or not all(req.is_plain for req in planner.running):
        return None
    evicts = bool(reqs) and planner.decodes.lacking_ahead(steps) > kv.allocator.num_free
    return Stride(planner, kv, meter, reqs=reqs, prompts=prompts, steps=steps, evicts=evicts)


def _room(planner: Planner, kv: KVManager) -> int:
    """Pages that the steps of a stride may take. Cached ones are not evicted if a step waits for
    their copies to the host, or if a waiting request, which matches them, may be admitted."""
    may_admit = bool(planner.waiting) and not planner.prefilling
    return kv.allocator.num_free if kv.host or may_admit else kv.available_pages


def _grow_ahead(kv: KVManager, decodes: Decodes, steps: int) -> None:
    """Allocate at once what `KVManager.grow` would allocate before each of `steps` steps of one
    token: the same pages in the same order, and the same ones are evicted. No layer may have window
    pages.

    Raises:
        MemoryError: fewer than they lack are available.
    """
    needs = decodes.needs_ahead(steps)
    if not needs:
        return
    groups = [needs]
    if len(needs) > kv.allocator.num_free:
        groups = [list(of_step) for _, of_step in groupby(needs, key=itemgetter(0))]
    for group in groups:
        decodes.grow_ahead([at for _, at in group], kv.take_pages(len(group)))


def _chunks(planner: Planner, kv: KVManager, decodes: int, most: int) -> tuple[list[Chunks], int]:
    """What each step computes of the admitted prompts, and for how many steps in a row it is that,
    completes none of them, and admits nobody; 0 steps if unknown.
    """
    prompts = planner.prefilling
    if not all(req.is_plain for req in prompts) or _may_match(planner.waiting, prompts, kv):
        return [], 0
    tokens, page = planner.prompt_budget(decodes), kv.page_size
    shortest = planner.waiting.shortest if kv.rows.num_free else math.inf
    left, chunks, steps = [req.extend_len for req in prompts], list[int](), 0
    while steps < most:
        shares = shares_of(left, tokens, page)
        of_step = [share // page * page for share in shares]
        completes = any(share == work for share, work in zip(shares, left, strict=True))
        if completes or (steps and of_step != chunks):
            break
        if shortest < math.inf and PromptBudget(tokens, left, page).passes(shortest):
            break
        left = [work - chunk for work, chunk in zip(left, of_step, strict=True)]
        chunks, steps = of_step, steps + 1
    of_each = zip(prompts, chunks, strict=True) if steps else ()
    return [Chunks(req, req.cached_len, chunk) for req, chunk in of_each if chunk], steps


def _may_match(waiting: WaitingQueue, prompts: Sequence[Req], kv: KVManager) -> bool:
    """Whether the next page of a prompt is cached, or another one computes it, too, so that a step
    frees pages; or whether a waiting request that may be admitted shares it."""
    pages = set[tuple[TreeNode, bytes]]()
    for req in prompts:
        assert req.node is not None
        page = _next_page(kv, req)
        is_shared = kv.rows.num_free and waiting.matches.has_next(req.node, page)
        if is_shared or page in req.node.children or (req.node, page) in pages:
            return True
        pages.add((req.node, page))
    return False


def _next_page(kv: KVManager, req: Req) -> bytes:
    """The edge to the page that an admitted request computes next."""
    assert req.node is not None
    page = edge(req.ids, req.cached_len, kv.page_size)
    return req.namespace + page if req.node.parent is None else page
