"""`Prefixes`: how much of a prompt is cached so that a request can continue from it.

This may be less than the radix cache holds: layers with a sliding window also need the window pages
before the point of continuation. It may be more than the device holds: if copying is faster than
computing, pages that only the host has count as well, and are loaded when the request is admitted.
"""

from collections.abc import Callable

from pando_worker.memory.host_tier import HostTier
from pando_worker.memory.places import places_of
from pando_worker.memory.radix_cache import Match, RadixCache, Tokens
from pando_worker.scheduler.pages.sliding import SlidingWindows


class Prefixes:
    def __init__(
        self,
        cache: RadixCache,
        host: HostTier | None,
        sliding: SlidingWindows | None,
        loading_pays: Callable[[], bool],
    ) -> None:
        """
        Args:
            loading_pays: whether pages on the host are copied instead of computed again
        """
        self._cache = cache
        self._host = host
        self._sliding = sliding
        self._loading_pays = loading_pays

    @property
    def are_whole(self) -> bool:
        """Whether a request can continue from all that the cache holds of its prompt."""
        return self._sliding is None and (self._host is None or self._loads)

    def pages(self, key: Tokens, namespace: bytes) -> int:
        """Pages of `key` that need not be computed; changes nothing."""
        return self._pages(key, namespace, self._loads)

    def match(self, key: Tokens, namespace: bytes) -> tuple[Match, int]:
        """The longest prefix to continue from, and its number of pages once it is loaded."""
        loads = self._loads  # read once, because the measured rates may change meanwhile
        if self._sliding:
            key = key[: self._pages(key, namespace, loads) * self._cache.page_size]
        match = self._cache.match_prefix(key, namespace)
        return match, len(match.pages) + (match.host_pages if loads else 0)

    @property
    def _loads(self) -> bool:
        return self._host is not None and self._loading_pays()

    def _pages(self, key: Tokens, namespace: bytes, loads: bool) -> int:
        if self._sliding is None:
            if loads or self._host is None:
                return self._cache.prefix_len(key, namespace) // self._cache.page_size
            return len(self._cache.pages_of(key, namespace))
        device, host = places_of(self._cache, key, namespace)
        if loads:
            return self._sliding.usable(device, host)
        return self._sliding.usable(device[device >= 0])

    def hold(self, match: Match, hit: int) -> None:
        """Keep what `load` will copy of a locked match, which must follow. Only for matches without
        a sliding window, since those hold single window pages."""
        if hit > len(match.pages):
            self._cache.hold(match)

    def load(self, match: Match, hit: int) -> Match:
        """Load a locked match to the device, up to `hit` pages, and lock the loaded nodes. Those of
        its window pages that only the host has are kept there until they are needed."""
        if self._host is None:
            return match
        if self._sliding:
            for node in self._sliding.to_load(match, hit):
                self._host.begin_load(node)
        if hit == len(match.pages):
            return match
        loaded = self._cache.load(match)
        self._cache.inc_lock_ref(loaded.node)
        self._cache.dec_lock_ref(match.node)
        return loaded
