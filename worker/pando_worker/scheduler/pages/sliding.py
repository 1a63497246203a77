"""`SlidingWindows`: which window pages each admitted request pins in each step.

    plan a step      cover: allocates window pages for the tokens that it runs
    launch it        slide: releases those that the next step does not read

Only for models whose window layers have their own pool; see `WindowPages`.
"""

from collections.abc import Sequence

import numpy as np

from pando_worker.memory.host_windows import HostWindows
from pando_worker.memory.page_allocator import Pages
from pando_worker.memory.places import host_pages_of
from pando_worker.memory.radix_cache import Match, TreeNode
from pando_worker.memory.req_pool import ReqToTokenPool
from pando_worker.memory.window_pages import WindowPages
from pando_worker.memory.window_sight import WindowSight
from pando_worker.scheduler.req import Req


class SlidingWindows:
    def __init__(
        self,
        windows: WindowPages,
        sight: WindowSight,
        rows: ReqToTokenPool,
        host: HostWindows | None = None,
    ) -> None:
        """
        Args:
            rows: the pages of each request
            host: the window pages that the host keeps; None without a host tier
        """
        self._windows = windows
        self._sight = sight
        self._rows = rows
        self._host = host
        self._page_size = rows.page_size

    def can_admit(self, cached: Pages, hit: int, reserve: int) -> bool:
        """Whether a request can continue from `hit` pages with `reserve` window pages available,
        those that it pins included, and at least one more, so that it can run.

        Args:
            cached: the leading ones of these pages that are on the device
        """
        first = self._sight.first_seen(hit)
        seen = cached[first:hit]
        unpinned = self._windows.num_unpinned(seen) + (hit - first - len(seen))
        left = self._windows.available - unpinned
        return left >= max(1, reserve - (hit - first))

    def usable(self, device: Pages, host: Pages | None = None) -> int:
        """How many of a cached prefix's pages a request can continue from.

        Args:
            device: [n], the pages in order; -1 for those that are only on the host
            host: [n], the host's pages likewise, if they may be loaded
        """
        present = self._windows.has(device)
        if host is not None and self._host is not None:
            present |= self._host.kept.has(host)
        return self._sight.usable(present)

    def to_load(self, match: Match, hit: int) -> Sequence[TreeNode]:
        """Nodes whose window pages a request that continues from `hit` pages loads from the host,
        although their pages are on the device."""
        first = self._sight.first_seen(hit)
        if self._windows.has(match.pages[first:]).all():
            return ()
        start = first * self._page_size
        path = match.node.path_up()
        return [node for node in path if node.host_pages is not None and node.end > start]

    def admit(self, req: Req) -> None:
        """Pin the window pages of a request's cached prefix; those that only the host has are
        copied before the next batch."""
        req.window_end = req.tree_tokens // self._page_size
        req.window_first = self._sight.first_seen(req.window_end)
        seen = self._pinned(req)
        there = self._windows.has(seen)
        self._windows.pin(seen[there])
        if not there.all():
            assert self._host is not None
            assert req.node is not None
            self._windows.grow(seen[~there])
            start = req.window_first * self._page_size
            on_host = host_pages_of(req.node, start, self._page_size)
            self._host.load(seen[~there], on_host[~there])

    def step_limit(self, req: Req) -> int:
        """Prompt tokens that a request can run in the next step: all that remain, or as many as
        there are window pages for."""
        pages = req.window_end + self._windows.available
        return min(req.extend_len, pages * self._page_size - req.cached_len)

    def cover(self, reqs: Sequence[Req], ends: Sequence[int]) -> None:
        """Give requests the window pages that they need to run their tokens up to `ends`.

        Raises:
            MemoryError: there is no room.
        """
        new: list[Pages] = []
        for req, end in zip(reqs, ends, strict=True):
            pages = -(-end // self._page_size)
            if pages > req.window_end:
                new.append(self._rows.pages[req.row, req.window_end : pages])
                req.window_end = pages
        if new:
            self._windows.grow(np.concatenate(new))

    def slide(self, reqs: Sequence[Req]) -> None:
        """Release the window pages that these requests no longer read; call after their launch.

        The step in flight still reads them, but steps run in order, so the next owner writes later.
        Those of an output are not cached: another request would continue from the output's end.
        """
        behind: list[Pages] = []
        of_output: list[Pages] = []
        for req in reqs:
            first = self._sight.first_kept(req.cached_len)
            if first > req.window_first:
                pages = self._rows.pages[req.row]
                behind.append(pages[req.window_first : first])
                prompt = -(-req.prompt_len // self._page_size)
                cached = req.tree_tokens // self._page_size
                own = max(req.window_first, cached, prompt)
                of_output.append(pages[own:first])
                req.window_first = first
        if behind:
            self._windows.unpin(np.concatenate(behind))
            self._windows.drop(np.concatenate(of_output))

    def pin(self, req: Req) -> None:
        self._windows.pin(self._pinned(req))

    def unpin(self, req: Req) -> None:
        self._windows.unpin(self._pinned(req))

    def _pinned(self, req: Req) -> Pages:
        return self._rows.pages[req.row, req.window_first : req.window_end]
