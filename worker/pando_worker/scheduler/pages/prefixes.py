"""`Prefixes`: how much of a prompt is cached such that a request can continue from it.

That may be less than what the radix cache holds: layers with a window need the window pages that
are seen from there. And it may be more than what the device holds: where copying beats computing,
pages that the host alone has count, and come to the device as the request is admitted.
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
            loading_pays: whether what the host has is copied rather than computed again
        """
        self._cache = cache
        self._host = host
        self._sliding = sliding
        self._loading_pays = loading_pays

    def pages(self, key: Tokens, namespace: bytes) -> int:
        """Pages of `key` that need not be computed; changes nothing."""
        return self._pages(key, namespace, self._loads)

    def match(self, key: Tokens, namespace: bytes) -> tuple[Match, int]:
        """The longest prefix to continue from, and how many pages it has once it is loaded."""
        loads = self._loads  # asked once: rates change meanwhile
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

    def load(self, match: Match, hit: int) -> Match:
        """Bring a match that is locked to the device, up to `hit` pages, and lock what came; what
        of its window pages only the host has, is kept there until they are asked for."""
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
