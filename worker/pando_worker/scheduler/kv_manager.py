"""`KVManager`: gives running requests their pages, and moves pages between their three owners.

Each page of the pool has exactly one owner: the allocator's free list, the radix cache, or a
request. Within the row of an admitted request:

    page    0 ............... tree_pages ............... num_pages
            owned by the cache,          owned by the
            locked through req.node      request alone

so at any time free + evictable + protected + owned by requests = capacity, and with no request
admitted protected and owned are 0.

With a host tier, cached pages may outlive their eviction in host memory. A request that finds them
there gets pages of the device, into which they are copied before the batch that is launched next:
`take_copies` belongs to every launch.
"""

from dataclasses import dataclass

from pando_worker.memory.host_tier import HostTier, copying_pays
from pando_worker.memory.page_allocator import PageAllocator
from pando_worker.memory.radix_cache import RadixCache
from pando_worker.memory.req_pool import ReqToTokenPool
from pando_worker.runner.batch import PageCopies
from pando_worker.scheduler.rates import Rate
from pando_worker.scheduler.req import Req

# Under write-through-selective: hits after which a prefix is stored on the host.
STORE_HITS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """What the host tier has to work with."""

    pages: int
    write: str  # the setting `host_write`
    bytes_per_token: int  # keys and values of all layers
    copy_rate: Rate  # bytes, as the runner measures them


class KVManager:
    def __init__(
        self,
        *,
        capacity_tokens: int,
        page_size: int,
        max_running_requests: int,
        max_request_tokens: int,
        radix_cache: bool = True,
        eviction_policy: str = "lru",
        host: HostMemory | None = None,
    ) -> None:
        """
        Args:
            capacity_tokens: size of the KV pool, rounded down to whole pages.
            max_request_tokens: prompt and output of one request; capped at the capacity, so that
                any request within it can run when it is alone.
            host: None for no host tier.
        """
        self.page_size = page_size
        self.allocator = PageAllocator(capacity_tokens // page_size)
        self.capacity_tokens = self.allocator.num_pages * page_size
        self.max_request_tokens = min(max_request_tokens, self.capacity_tokens)
        self.rows = ReqToTokenPool(max_running_requests, self.max_request_tokens, page_size)
        self.prefill_rate = Rate()  # tokens; a scheduler puts its own measurement here
        self._host_memory = host
        self.host: HostTier | None = None
        if host:
            self.host = HostTier(
                host.pages,
                self.allocator.num_pages,
                store_hits=STORE_HITS if host.write == "write-through-selective" else None,
                pays=self._copying_pays,
            )
        self.cache = RadixCache(
            self.allocator,
            page_size,
            enabled=radix_cache,
            policy=eviction_policy,
            host=self.host,
        )

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

    @property
    def free_tokens(self) -> int:
        return self.allocator.num_free * self.page_size

    @property
    def evicted_tokens(self) -> int:
        """Cached tokens that were forgotten so far; what moved to the host is not among them."""
        return self.cache.evicted_pages * self.page_size

    @property
    def hot_evicted_tokens(self) -> int:
        """Of these, the ones that were asked for again soon; see `GhostList`."""
        return self.cache.hot_evicted_tokens

    @property
    def host_capacity_tokens(self) -> int:
        return self.host.allocator.num_pages * self.page_size if self.host else 0

    @property
    def host_tokens(self) -> int:
        """Tokens that the host holds, whether the device has them too or not."""
        return self.host.held_pages * self.page_size if self.host else 0

    @property
    def host_stored_tokens(self) -> int:
        """Tokens copied from the device to the host so far."""
        return self.host.stored_pages * self.page_size if self.host else 0

    @property
    def host_loaded_tokens(self) -> int:
        """Tokens copied from the host to the device so far."""
        return self.host.loaded_pages * self.page_size if self.host else 0

    def take_copies(self) -> tuple[PageCopies | None, PageCopies | None]:
        """Stores and loads for the batch that is about to be launched; see `HostTier`."""
        return self.host.take_copies() if self.host else (None, None)

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def admit(self, req: Req, reserve: int) -> bool:
        """Lock what is cached of a waiting request and give it a row and pages for all its tokens.

        False, and nothing has changed, when no row is left or fewer than `reserve` pages would
        stay available.
        """
        if self.rows.num_free == 0:
            return False
        key = req.tokens(req.matchable)
        match = self.cache.match_prefix(key)
        self.cache.inc_lock_ref(match.node)
        if self.pages_for(req.num_tokens) - len(match.pages) + reserve > self.available_pages:
            self.cache.dec_lock_ref(match.node)
            return False
        if match.host_pages and self._copying_pays(1):
            on_device, match = match.node, self.cache.load(match)
            self.cache.inc_lock_ref(match.node)
            self.cache.dec_lock_ref(on_device)
        self.cache.count_use(key, match)
        hit = len(match.pages)
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
            self.cache.evict(shortage)
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

        Args:
            end: how many of its first tokens are computed, `cached_len` if nothing is in flight.
        """
        count = (req.cached_len if end is None else end) // self.page_size
        if count > req.tree_pages and self.cache.enabled:
            self._give_to_cache(req, count)
            req.tree_pages = count
        self.release(req)

    def retract_req(self, req: Req, end: int | None = None) -> None:
        """Like `cache_finished_req`, for a request that will come back: it then waits again, with
        nothing held. Where copying beats computing, what it computed goes to the host, at once or
        when it is evicted, so that no more than a copy is lost."""
        key = req.tokens(
            (req.cached_len if end is None else end) // self.page_size * self.page_size
        )
        self.cache_finished_req(req, end)
        if self.host and self.host.store_hits and self._copying_pays(2):
            self.cache.back_up(key)

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
        if self.host and (lost := self.host.lost_pages):
            raise RuntimeError(f"{lost} host pages are neither free nor held by the radix cache")

    def _copying_pays(self, copies: int) -> bool:
        memory = self._host_memory
        return memory is not None and copying_pays(
            copies,
            bytes_per_token=memory.bytes_per_token,
            copy_bytes_per_s=memory.copy_rate.per_second,
            prefill_tokens_per_s=self.prefill_rate.per_second,
        )

    def _give_to_cache(self, req: Req, count: int) -> None:
        """Insert a request's first `count` pages; frees those of its own that were there already.

        The row still names the freed ones afterwards: the caller mends or drops it.
        """
        pages = self.rows.pages[req.row, :count]
        known = self.cache.insert(req.tokens(count * self.page_size), pages)
        self.allocator.free(pages[req.tree_pages : known])
