"""`KVManager`: allocates running requests' pages and moves pages between their three owners.

Each page of the pool has exactly one owner: the allocator's free list, the radix cache, or a
request. Within the row of an admitted request:

    page    0 ............... tree_pages ............... num_pages
            owned by the cache,          owned by the
            locked through req.node      request alone

so at any time free + evictable + protected + owned by requests = capacity, and while no request is
admitted, protected and owned are 0.

A retraction (`retract_req`) takes a running request's pages back, so that the others have room; its
victim is chosen in `planning/admission.py`.

Layers with a sliding window may have their own, smaller pool, whose pages are released behind the
window (`WindowPages`). A request pins the window pages that its next step reads: they are allocated
when a step is planned (`grow`, `cover`) and released once it is launched (`slide`).

With a host tier, host memory keeps cached pages that the device evicted. A request that matches
them gets device pages, into which they are copied before the next launched batch: `put_copies`
belongs to every launch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pando_worker.batch import ForwardBatch
from pando_worker.memory.host_tier import HostTier, copying_pays
from pando_worker.memory.host_windows import HostWindows
from pando_worker.memory.page_allocator import PageAllocator, Pages
from pando_worker.memory.radix_cache import RadixCache, Tokens
from pando_worker.memory.req_pool import ReqToTokenPool
from pando_worker.memory.tree_node import Insertion
from pando_worker.memory.window_pages import WindowPages
from pando_worker.memory.window_sight import WindowMemory, WindowSight
from pando_worker.rates import Rate
from pando_worker.scheduler.pages.prefixes import Prefixes
from pando_worker.scheduler.pages.sliding import SlidingWindows
from pando_worker.scheduler.pages.sources import SourcePages
from pando_worker.scheduler.req import Req
from pando_worker.stats import Stats

# With `write-through-selective`, a prefix is stored on the host after this many hits.
STORE_HITS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """The size and settings of the host tier."""

    pages: int
    write: str  # the setting `host_write`
    bytes_per_token: int  # keys and values of all layers
    copy_rate: Rate  # bytes, measured by the runner
    window_pages: int = 0  # if the window layers have their own pool


class KVManager:
    def __init__(
        self,
        *,
        capacity_tokens: int,
        page_size: int,
        max_running_requests: int,
        max_request_tokens: int,
        radix_cache: bool = True,
        whole_prompts: bool = False,
        eviction_policy: str = "lru",
        host: HostMemory | None = None,
        windows: WindowMemory | None = None,
        source_positions: int = 0,
    ) -> None:
        """
        Args:
            capacity_tokens: size of the KV pool, rounded down to whole pages.
            max_request_tokens: prompt and output of one request; capped at the capacity, so that
                any request of this length can run alone.
            whole_prompts: each step runs whole prompts, of which nothing is kept.
            host: None for no host tier.
            windows: None if all layers share one pool.
            source_positions: of the source of a request, at most; 0 without sources. Any request
                runs alone beside a source of this length.
        """
        self.page_size = page_size
        self.whole_prompts = whole_prompts
        num_pages = capacity_tokens // page_size
        self.windows = WindowPages(windows.pages, num_pages) if windows else None
        self.sight = WindowSight(windows, page_size) if windows else None
        self.allocator = PageAllocator(num_pages, self.windows.drop if self.windows else None)
        self.capacity_tokens = self.allocator.num_pages * page_size
        beside = -(-source_positions // page_size) * page_size
        self.max_request_tokens = min(max_request_tokens, self.capacity_tokens - beside)
        self.rows = ReqToTokenPool(max_running_requests, self.max_request_tokens, page_size)
        self.prefill_rate = Rate()  # tokens; the scheduler replaces it by its own
        self._host_memory = host
        self.host = self._make_host_tier(host) if host else None
        self.cache = RadixCache(
            self.allocator,
            page_size,
            enabled=radix_cache and not whole_prompts,
            policy=eviction_policy,
            host=self.host,
        )
        self.sliding: SlidingWindows | None = None
        if self.windows and self.sight:
            host_windows = self.host.windows if self.host else None
            self.sliding = SlidingWindows(self.windows, self.sight, self.rows, host_windows)
        self.prefixes = Prefixes(self.cache, self.host, self.sliding, lambda: self._copying_pays(1))
        self.sources: SourcePages | None = None
        if source_positions:
            self.sources = SourcePages(
                self.cache,
                self.allocator,
                self.prefixes,
                rows=max_running_requests,
                positions=source_positions,
            )

    def _make_host_tier(self, memory: HostMemory) -> HostTier:
        windows = None
        if self.windows:
            windows = HostWindows(memory.window_pages, memory.pages, self.windows)
        return HostTier(
            memory.pages,
            self.allocator.num_pages,
            store_hits=STORE_HITS if memory.write == "write-through-selective" else None,
            pays=self._copying_pays,
            windows=windows,
        )

    @property
    def available_pages(self) -> int:
        """Pages that can be allocated without retracting a request."""
        return self.allocator.num_free + self.cache.evictable_pages

    @property
    def pinned_tokens(self) -> int:
        """Tokens that running requests hold. If the window layers' pool is fuller than the main
        one, its share scaled to the main capacity: the worker is full when either pool is.
        """
        pinned = (self.allocator.num_pages - self.available_pages) * self.page_size
        if self.windows:
            total = self.windows.allocator.num_pages
            pinned = max(pinned, -(-self.windows.num_pinned * self.capacity_tokens // total))
        return pinned

    @property
    def cached_tokens(self) -> int:
        """Tokens that only the radix cache holds; excludes those counted by `pinned_tokens`."""
        cached = self.cache.evictable_pages * self.page_size
        return min(cached, self.capacity_tokens - self.pinned_tokens)

    def put_stats(self, stats: Stats) -> None:
        """Write the gauges and counters of the pools and the cache into `stats`."""
        page = self.page_size
        stats.capacity_tokens = self.capacity_tokens
        stats.pinned_tokens, stats.cached_tokens = self.pinned_tokens, self.cached_tokens
        stats.evicted_tokens_total = self.cache.evicted_pages * page
        stats.hot_evicted_tokens_total = self.cache.hot_evicted_tokens
        if windows := self.windows:
            stats.window_capacity_tokens = windows.allocator.num_pages * page
            stats.window_pinned_tokens = windows.num_pinned * page
            stats.window_cached_tokens = windows.num_cached * page
        if sources := self.sources:
            stats.source_hits_total = sources.shared_total
            stats.source_misses_total = sources.encoded_total
            stats.source_tokens_total = sources.encoded_positions_total
        if host := self.host:
            stats.host_capacity_tokens = host.allocator.num_pages * page
            stats.host_tokens = host.held_pages * page
            stats.host_stored_tokens_total = host.stored_pages * page
            stats.host_loaded_tokens_total = host.loaded_pages * page

    def put_copies(self, batch: ForwardBatch) -> None:
        """Add the pending stores and loads to the batch that is launched next; see `HostTier`. And
        its rows' sources, with those that it encodes."""
        if self.sources:
            batch.sources = self.sources.take(batch.req_rows)
        if self.host:
            batch.stores, batch.loads = self.host.take_copies()
            if self.host.windows:
                batch.window_stores, batch.window_loads = self.host.windows.take_copies()

    def tree_pages(self, req: Req) -> int:
        """The leading pages of an admitted request's row that the radix cache owns."""
        return req.tree_tokens // self.page_size

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def prefix_len(self, key: Tokens, namespace: bytes = b"") -> int:
        """Tokens of `key` that a request would not have to compute; changes nothing."""
        return self.prefixes.pages(key, namespace) * self.page_size

    def usable(self, req: Req) -> int:
        """Cached tokens from which a waiting request can continue; changes nothing."""
        end = self.prefix_len(req.tokens(req.matchable), req.namespace)
        while image := req.image_around(end):
            end = self.prefix_len(req.tokens(image.start), req.namespace)
        return end

    def admit(self, req: Req, reserve: int, window_reserve: int = 0) -> bool:
        """Lock a waiting request's cached prefix, give it a row and pages for all its tokens, and
        pin the window pages of the cached prefix.

        Returns False and changes nothing if no row is left, if fewer than `reserve` pages would
        stay available, or if fewer than `window_reserve` window pages are, those that it pins
        included.
        """
        if self.rows.num_free == 0:
            return False
        key = req.tokens(req.matchable)
        match, hit = self.prefixes.match(key, req.namespace)
        while image := req.image_around(hit * self.page_size):
            key = req.tokens(image.start)
            match, hit = self.prefixes.match(key, req.namespace)
        self.cache.inc_lock_ref(match.node)
        lacking = self.pages_for(req.num_tokens) - len(match.pages)
        source = None
        if self.sources and req.source:
            source = self.sources.lock(req.source)
            lacking += source.lacking
        fits = lacking + reserve <= self.available_pages
        if fits and self.sliding:
            fits = self.sliding.can_admit(match.pages, hit, window_reserve)
        if not fits:
            self.cache.dec_lock_ref(match.node)
            if self.sources and source:
                self.sources.unlock(source)
            return False
        if self.sources and source:
            self.sources.hold(source)
        match = self.prefixes.load(match, hit)
        self.cache.count_use(key, match, req.namespace)
        req.row = self.rows.alloc()
        req.node = match.node
        req.num_pages = hit
        req.cached_len = hit * self.page_size
        self.rows.pages[req.row, :hit] = match.pages
        self._grow(req)
        if self.sources and source:
            self.sources.admit(req, source)
        if self.sliding:
            self.sliding.admit(req)
        return True

    def has_room(self, reqs: Sequence[Req], missing: int = 0) -> bool:
        """Whether admitted requests can get all pages that they lack to run all their tokens, and
        `missing` pages, with their window pages, for others."""
        window_missing = missing
        for req in reqs:
            pages = self.pages_for(req.num_tokens)
            missing += pages - req.num_pages
            window_missing += pages - req.window_end
        if self.windows and window_missing > self.windows.available:
            return False
        return missing <= self.available_pages

    def step_limit(self, req: Req) -> int:
        """Prompt tokens that an admitted request can run in the next step: all that remain, unless
        it has to wait for window pages."""
        return self.sliding.step_limit(req) if self.sliding else req.extend_len

    def grow(self, reqs: Sequence[Req]) -> None:
        """Give admitted requests the pages that they lack to run all their tokens; evicts cached
        pages if none are free.

        Raises:
            MemoryError: there is no room.
        """
        for req in reqs:
            self._grow(req)
        if self.sliding:
            self.sliding.cover(reqs, [req.num_tokens for req in reqs])

    def take_pages(self, count: int) -> Pages:
        """Allocate pages for running requests, in the order in which they would come one by one,
        and pin window pages for them; evicts cached ones if too few are free.

        Raises:
            MemoryError: there is no room.
        """
        self.cache.evict(count - self.allocator.num_free)
        pages = self.allocator.alloc(count)[::-1]  # the free list is a stack
        if self.windows:
            self.windows.grow(pages)
        return pages

    def cover(self, req: Req, end: int) -> None:
        """Give an admitted request the window pages that it needs to run its tokens up to `end`.

        Raises:
            MemoryError: there is no room.
        """
        if self.sliding:
            self.sliding.cover([req], [end])

    def slide(self, reqs: Sequence[Req]) -> None:
        """Release the window pages that these requests no longer read; call after their launch."""
        if self.sliding:
            self.sliding.slide(reqs)

    def _grow(self, req: Req) -> None:
        missing = self.pages_for(req.num_tokens) - req.num_pages
        if missing == 0:
            return
        self.cache.evict(missing - self.allocator.num_free)
        end = req.num_pages + missing
        self.rows.pages[req.row, req.num_pages : end] = self.allocator.alloc(missing)
        req.num_pages = end

    def cache_unfinished_req(self, req: Req, end: int | None = None) -> None:
        """Share the pages that a running request has computed, so that others can match them.

        Its full pages go to the cache; if the cache already has them, the request's copies are
        freed and its row points to the cache's. A step in flight may still write to a freed page:
        steps run in order, so the page's next owner writes it later.

        Args:
            end: how many of its first tokens are computed, `cached_len` if nothing is in flight.
        """
        count = (req.cached_len if end is None else end) // self.page_size
        assert req.node is not None
        if count <= self.tree_pages(req) or not self._may_share(req):
            return
        if self.sliding:
            self.sliding.unpin(req)
        owned = self.tree_pages(req)
        given = self._give_to_cache(req, count)
        if given.known > owned:
            key = req.tokens(count * self.page_size)
            match = self.cache.match_prefix(key, req.namespace, req.node)
            self.rows.replace(req.row, owned, match.pages)
        self.cache.move_lock_ref(req.node, given.node)
        req.node = given.node
        if self.sliding:
            self.sliding.pin(req)

    def cache_finished_req(self, req: Req, end: int | None = None) -> None:
        """Free a request's row; its computed pages stay in the cache, unlocked.

        Args:
            end: how many of its first tokens are computed, `cached_len` if nothing is in flight.
        """
        count = (req.cached_len if end is None else end) // self.page_size
        if self.sliding:
            self.sliding.unpin(req)
        owned = self.tree_pages(req)
        if count > owned and self._may_share(req):
            self._give_to_cache(req, count)
            owned = count
        self._release(req, owned)

    def retract_req(self, req: Req, end: int | None = None) -> None:
        """Retract a running request: like `cache_finished_req`, but it waits again and holds
        nothing. If copying is faster than computing, its pages go to the host, at once or when they
        are evicted, so that the retraction costs at most a copy."""
        key = req.tokens(
            (req.cached_len if end is None else end) // self.page_size * self.page_size
        )
        self.cache_finished_req(req, end)
        if self.host and self.host.store_hits and self._copying_pays(2):
            self.cache.back_up(key, req.namespace)
            if req.source:
                self.cache.back_up(req.source.key, req.source.namespace)

    def discard_failed_req(self, req: Req) -> None:
        """Free a failed request's row, and remove from the cache what it has computed, since the
        next request with this prefix would fail as well."""
        key = req.tokens(req.tree_tokens)
        if self.sliding:
            self.sliding.unpin(req)
        self._release(req, self.tree_pages(req))
        if self.cache.enabled:
            start = (req.cached_prompt_tokens or 0) // self.page_size * self.page_size
            self.cache.forget(key, start, req.namespace)

    def _may_share(self, req: Req) -> bool:
        """Whether the cache takes a running request's pages: not if they follow forgotten ones."""
        assert req.node is not None
        return self.cache.enabled and not req.node.is_forgotten

    def _release(self, req: Req, owned: int) -> None:
        """Free a request's row, and its pages but for the first `owned`, which the cache owns."""
        assert req.node is not None
        self.cache.dec_lock_ref(req.node)
        if self.sources:
            self.sources.release(req)
        self.allocator.free(self.rows.pages[req.row, owned : req.num_pages])
        self.rows.free(req.row)
        req.row, req.node = -1, None
        req.num_pages = req.cached_len = 0
        req.window_first = req.window_end = 0

    def flush(self) -> None:
        """Drop all cached prefixes; allowed only while no request is admitted."""
        self.check_idle()
        self.cache.reset()

    def check_idle(self) -> None:
        """Check, with no request admitted, that all pages are free or evictable and all rows free.

        Raises:
            RuntimeError: pages or rows leaked; continuing to serve would only hide it.
        """
        lost = self.allocator.num_pages - self.available_pages
        rows = len(self.rows.pages) - self.rows.num_free
        if lost or rows or self.cache.protected_pages:
            raise RuntimeError(
                f"idle, but of {self.allocator.num_pages} KV pages {lost} are neither free nor"
                f" evictable, {self.cache.protected_pages} are locked, and {rows} rows are taken;"
                f" the radix cache: {self.cache.pretty_print()}"
            )
        if twice := self.allocator.num_twice:
            raise RuntimeError(f"idle, but {twice} KV pages are free twice")
        if self.host and (lost := self.host.lost_pages):
            raise RuntimeError(f"{lost} host pages are neither free nor held by the radix cache")
        if self.host and self.host.windows and (lost := self.host.windows.kept.num_lost):
            raise RuntimeError(f"{lost} of the host's window pages are neither free nor held")
        if self.windows:
            self.windows.check_idle()

    def _copying_pays(self, copies: int) -> bool:
        memory = self._host_memory
        return memory is not None and copying_pays(
            copies,
            bytes_per_token=memory.bytes_per_token,
            copy_bytes_per_s=memory.copy_rate.per_second,
            prefill_tokens_per_s=self.prefill_rate.per_second,
        )

    def _give_to_cache(self, req: Req, count: int) -> Insertion:
        """Insert a request's first `count` pages into the cache; frees its own copies of pages that
        the cache already has. If the cache has lost their window pages, it gets the request's.

        The row still names the freed pages afterwards: the caller updates or frees it.
        """
        key, pages = req.tokens(count * self.page_size), self.rows.pages[req.row, :count]
        given = self.cache.insert(key, pages, req.namespace, req.node)
        twice = slice(self.tree_pages(req), given.known)
        if self.windows and twice.start < given.known:
            there = self.cache.pages_of(key, req.namespace)
            self.windows.move(pages[twice], there[twice])
        self.allocator.free(pages[twice])
        return given
