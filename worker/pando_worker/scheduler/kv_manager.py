"""`KVManager`: gives running requests their pages, and moves pages between their three owners.

Each page of the pool has exactly one owner: the allocator's free list, the radix cache, or a
request. Within the row of an admitted request:

    page    0 ............... tree_pages ............... num_pages
            owned by the cache,          owned by the
            locked through req.node      request alone

so at any time free + evictable + protected + owned by requests = capacity, and with no request
admitted protected and owned are 0.
"""

from pando_worker.memory.page_allocator import PageAllocator
from pando_worker.memory.radix_cache import RadixCache
from pando_worker.memory.req_pool import ReqToTokenPool
from pando_worker.scheduler.req import Req


class KVManager:
    def __init__(
        self,
        *,
        capacity_tokens: int,
        page_size: int,
        max_running_requests: int,
        max_request_tokens: int,
        radix_cache: bool = True,
    ) -> None:
        """
        Args:
            capacity_tokens: size of the KV pool, rounded down to whole pages.
            max_request_tokens: prompt and output of one request; capped at the capacity, so that
                any request within it can run when it is alone.
        """
        self.page_size = page_size
        self.allocator = PageAllocator(capacity_tokens // page_size)
        self.capacity_tokens = self.allocator.num_pages * page_size
        self.max_request_tokens = min(max_request_tokens, self.capacity_tokens)
        self.rows = ReqToTokenPool(max_running_requests, self.max_request_tokens, page_size)
        self.cache = RadixCache(self.allocator, page_size, enabled=radix_cache)
        self.evicted_tokens = 0

    @property
    def available_pages(self) -> int:
        """Pages to be had without taking any from a request."""
        return self.allocator.num_free + self.cache.evictable_pages

    @property
    def cached_tokens(self) -> int:
        return self.cache.evictable_pages * self.page_size

    @property
    def pinned_tokens(self) -> int:
        return (self.allocator.num_pages - self.available_pages) * self.page_size

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def admit(self, req: Req, reserve: int) -> bool:
        """Lock what is cached of a waiting request and give it a row and pages for all its tokens.

        False, and nothing has changed, when no row is left or fewer than `reserve` pages would
        stay available.
        """
        if self.rows.num_free == 0:
            return False
        match = self.cache.match_prefix(req.tokens(req.matchable))
        self.cache.inc_lock_ref(match.node)
        hit = len(match.pages)
        if self.pages_for(req.num_tokens) - hit + reserve > self.available_pages:
            self.cache.dec_lock_ref(match.node)
            return False
        req.row = self.rows.alloc()
        req.node = match.node
        req.tree_pages = req.num_pages = hit
        req.cached_len = hit * self.page_size
        self.rows.pages[req.row, :hit] = match.pages
        self.grow(req)
        return True

    def pages_missing(self, req: Req) -> int:
        """Pages that an admitted request lacks to run all its tokens."""
        return self.pages_for(req.num_tokens) - req.num_pages

    def grow(self, req: Req) -> None:
        """Give an admitted request the pages it lacks, evicting where none is free.

        Raises:
            MemoryError: more are missing than `available_pages`.
        """
        missing = self.pages_missing(req)
        if missing == 0:
            return
        shortage = missing - self.allocator.num_free
        if shortage > 0:
            self.evicted_tokens += self.cache.evict(shortage) * self.page_size
        end = req.num_pages + missing
        self.rows.pages[req.row, req.num_pages : end] = self.allocator.alloc(missing)
        req.num_pages = end

    def cache_unfinished_req(self, req: Req, end: int | None = None) -> None:
        """Share what a running request has computed, so that others can match it at once.

        Its whole pages go to the cache; where the cache had them already, the request's copies
        are freed and its row points to the cache's. A step in flight may still write to a freed
        page: steps run in order, so whoever gets the page next writes it later.

        Args:
            end: how many of its first tokens are computed, `cached_len` if nothing is in flight.
        """
        count = (req.cached_len if end is None else end) // self.page_size
        if count <= req.tree_pages or not self.cache.enabled:
            return
        assert req.node is not None
        self._give_to_cache(req, count)
        match = self.cache.match_prefix(req.tokens(count * self.page_size))
        self.cache.inc_lock_ref(match.node)
        self.cache.dec_lock_ref(req.node)
        self.rows.pages[req.row, :count] = match.pages
        req.node, req.tree_pages = match.node, count

    def cache_finished_req(self, req: Req, end: int | None = None) -> None:
        """Take a request's row; what it computed stays behind in the cache, unlocked.

        Also how a request is retracted: it then waits again, with nothing held.

        Args:
            end: how many of its first tokens are computed, `cached_len` if nothing is in flight.
        """
        count = (req.cached_len if end is None else end) // self.page_size
        if count > req.tree_pages and self.cache.enabled:
            self._give_to_cache(req, count)
            req.tree_pages = count
        self.release(req)

    def release(self, req: Req) -> None:
        """Take a request's row and free all that it alone owns."""
        assert req.node is not None
        self.cache.dec_lock_ref(req.node)
        self.allocator.free(self.rows.pages[req.row, req.tree_pages : req.num_pages])
        self.rows.free(req.row)
        req.row, req.node = -1, None
        req.num_pages = req.tree_pages = req.cached_len = 0

    def flush(self) -> None:
        """Forget all cached prefixes; only while no request is admitted."""
        self.check_idle()
        self.cache.reset()

    def check_idle(self) -> None:
        """With no request admitted every page is free or evictable, and no row is taken.

        Raises:
            RuntimeError: pages or rows were lost; serving on would only hide it.
        """
        lost = self.allocator.num_pages - self.available_pages
        rows = len(self.rows.pages) - self.rows.num_free
        if lost or rows or self.cache.protected_pages:
            raise RuntimeError(
                f"idle, but of {self.allocator.num_pages} KV pages {lost} are neither free nor"
                f" evictable, {self.cache.protected_pages} are locked, and {rows} rows are taken;"
                f" the radix cache: {self.cache.pretty_print()}"
            )

    def _give_to_cache(self, req: Req, count: int) -> None:
        """Insert a request's first `count` pages; frees those of its own that were there already.

        The row still names the freed ones afterwards: the caller mends or drops it.
        """
        pages = self.rows.pages[req.row, :count]
        known = self.cache.insert(req.tokens(count * self.page_size), pages)
        self.allocator.free(pages[req.tree_pages : known])
