"""`SourcePages`: the pages of what encoders made, to which decoders attend.

Each request of an encoder-decoder has a source, and a second page table for it. The pages lie in
the KV pool and belong to the radix cache from the moment they are allocated: there the source is a
prefix of its own, whose tokens are made from its digest like those of an image. So equal sources
share pages, requests lock them, and they are evicted, kept on the host and counted like any others.

A source is encoded before the decoder in the step that admits its first request, whichever requests
that step runs: later ones of the same step may attend to it already.
"""

from dataclasses import dataclass

import numpy as np

from pando_worker.batch import Int32, Int64, SourceArray, SourceRows
from pando_worker.memory.page_allocator import PageAllocator, Pages
from pando_worker.memory.radix_cache import Match, RadixCache
from pando_worker.scheduler.pages.prefixes import Prefixes
from pando_worker.scheduler.req import Req, SourceSpan


@dataclass(frozen=True, slots=True)
class LockedSource:
    """A waiting request's source, as far as it is cached.

    Attributes:
        hit: pages, once those on the host are loaded
        lacking: pages that it needs beside those on the device
    """

    span: SourceSpan
    match: Match
    hit: int
    lacking: int

    @property
    def is_whole(self) -> bool:
        return self.hit == self.span.num_pages


class SourcePages:
    """
    Attributes:
        encoded_total, encoded_positions_total: sources that were not cached
        shared_total: admissions of requests whose source was
    """

    def __init__(
        self,
        cache: RadixCache,
        allocator: PageAllocator,
        prefixes: Prefixes,
        *,
        rows: int,
        positions: int,
    ) -> None:
        """
        Args:
            rows: most running requests
            positions: of a source, at most
        """
        self.page_size = cache.page_size
        self.positions = positions
        self._cache = cache
        self._allocator = allocator
        self._prefixes = prefixes
        self._table: Int32 = np.zeros((rows, -(-positions // self.page_size)), dtype=np.int32)
        self._lengths: Int32 = np.zeros(rows, dtype=np.int32)
        self._to_encode: list[tuple[SourceSpan, Pages]] = []  # in the next launch
        self.encoded_total = self.encoded_positions_total = self.shared_total = 0

    def is_cached(self, span: SourceSpan) -> bool:
        """Whether a source need not be encoded; changes nothing."""
        return self._prefixes.pages(span.key, span.namespace) == span.num_pages

    def lock(self, span: SourceSpan) -> LockedSource:
        """Lock what is on the device of a source; `admit` or `unlock` follows."""
        match, hit = self._prefixes.match(span.key, span.namespace)
        self._cache.inc_lock_ref(match.node)
        return LockedSource(span, match, hit, span.num_pages - len(match.pages))

    def unlock(self, source: LockedSource) -> None:
        self._cache.dec_lock_ref(source.match.node)

    def hold(self, source: LockedSource) -> None:
        """Keep a source that is only on the host while its request's prompt takes pages; `admit`
        must follow."""
        if source.is_whole:
            self._prefixes.hold(source.match, source.hit)

    def admit(self, req: Req, source: LockedSource) -> None:
        """Give an admitted request's row its source; `lacking` pages are free or evictable."""
        span, match = source.span, source.match
        if not self._is_queued(span):  # a hit may store pages, which the encoder has yet to fill
            self._cache.count_use(span.key, match, span.namespace)
        if req.is_source_cached is None:
            req.is_source_cached = source.is_whole
        if source.is_whole:
            self.shared_total += 1
            match = self._prefixes.load(match, source.hit)
        else:
            match = self._allocate(source)
            self._to_encode.append((span, match.pages))
            self.encoded_total += 1
            self.encoded_positions_total += span.length
        req.source_node = match.node
        self._table[req.row, : span.num_pages] = match.pages
        self._lengths[req.row] = span.length

    def _is_queued(self, span: SourceSpan) -> bool:
        return any(
            queued.digest == span.digest and queued.namespace == span.namespace
            for queued, _ in self._to_encode
        )

    def _allocate(self, source: LockedSource) -> Match:
        span, held = source.span, source.match
        self._cache.evict(source.lacking - self._allocator.num_free)
        pages = np.concatenate((held.pages, self._allocator.alloc(source.lacking)))
        given = self._cache.insert(span.key, pages, span.namespace)
        assert given.known == len(held.pages), "nobody else inserts between lock and admission"
        match = self._cache.match_prefix(span.key, span.namespace)
        self._cache.inc_lock_ref(match.node)
        self._cache.dec_lock_ref(held.node)
        return match

    def release(self, req: Req) -> None:
        """An admitted request no longer attends to its source."""
        if req.source is None or req.source_node is None:
            return
        self._cache.dec_lock_ref(req.source_node)
        req.source_node = None
        self._lengths[req.row] = 0
        if not self._cache.enabled:
            self._cache.forget(req.source.key, 0, req.source.namespace)

    def take(self, rows: Int64) -> SourceRows:
        """What the next launched batch needs of sources.

        Args:
            rows: of the ReqToTokenPool, those of the batch
        """
        taken, self._to_encode = self._to_encode, []
        lengths = self._lengths[rows]
        most = -(-int(lengths.max()) // self.page_size)
        slots = [self._slots(pages, span.length) for span, pages in taken]
        return SourceRows(
            encode=[SourceArray(span.digest, span.array) for span, _ in taken],
            slots=np.concatenate(slots) if slots else np.empty(0, dtype=np.int64),
            lengths=lengths,
            page_table=self._table[rows, :most],
        )

    def _slots(self, pages: Pages, length: int) -> Int64:
        first = pages.astype(np.int64) * self.page_size
        slots: Int64 = (first[:, None] + np.arange(self.page_size)).reshape(-1)[:length]
        return slots
