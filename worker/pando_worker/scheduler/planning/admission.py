"""Which waiting requests start, and which running ones have to stop.

Admission looks ahead: a waiting request starts only if, after it got pages for its prompt, enough
stay available for what all running requests are expected to produce, `new_token_ratio` of their
`max_new_tokens`, and a watermark besides. Where that guess was too low, decode retracts requests
until the rest fits.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pando_worker.scheduler.batches.batching import Row, next_row
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.planning.new_token_ratio import still_allowed
from pando_worker.scheduler.planning.sharing import Computing
from pando_worker.scheduler.req import Req


class Reserve(NamedTuple):
    """To be kept available."""

    pages: int
    window_pages: int

    def plus(self, other: "Reserve") -> "Reserve":
        return Reserve(self.pages + other.pages, self.window_pages + other.window_pages)


NOTHING = Reserve(0, 0)


def growth(req: Req, new_token_ratio: float, kv: KVManager) -> Reserve:
    """What a request is expected to take beyond what it holds, or is about to get: pages for its
    output, and window pages for one window, however long the output is."""
    total = req.num_tokens + math.ceil(still_allowed(req) * new_token_ratio)
    held = req.num_pages if req.is_admitted else kv.pages_for(req.num_tokens)
    window_pages = 0
    if kv.sight:
        most = kv.sight.most(total, req.extend_len)
        window_pages = max(0, most - (req.window_end - req.window_first))
    return Reserve(kv.pages_for(total) - held, window_pages)


def reserved(admitted: Sequence[Req], new_token_ratio: float, kv: KVManager) -> Reserve:
    """What to keep available for what the admitted requests are expected to produce."""
    pages = window_pages = 0
    for req in admitted:
        own = growth(req, new_token_ratio, kv)
        pages, window_pages = pages + own.pages, window_pages + own.window_pages
    return Reserve(pages, window_pages)


def admit(
    candidates: Iterable[Req],
    kv: KVManager,
    computing: Computing,
    *,
    token_budget: int,
    new_token_ratio: float,
    reserve: Reserve,
    alone: bool,
    max_passed_over: int,
) -> list[Req]:
    """Admit waiting requests in order until tokens, rows or pages run out; returns the admitted.

    The first that does not fit stops it: letting smaller ones pass would starve it. A request that
    is alone always fits, since none is accepted that exceeds the pool. One whose prefix is just
    being computed for another waits for that; those behind it may pass, but not too many.

    Args:
        token_budget: prompt tokens still to be filled in this step; the last request admitted may
            exceed it, and is then run in chunks.
        reserve: to leave available.
        alone: no other request is admitted: then the reserve does not count for the first.
        max_passed_over: later ones that may be admitted before a request
    """
    new: list[Req] = []
    may_pass: float = math.inf  # those that wait for a prefix
    for req in candidates:
        if token_budget <= 0 or kv.rows.num_free == 0:
            break
        if computing.shares(req):
            may_pass = min(may_pass, max_passed_over - req.passed_over)
            continue
        if may_pass <= 0:
            break
        after = reserve.plus(growth(req, new_token_ratio, kv))
        if not kv.admit(req, *(NOTHING if alone else after)):
            break
        alone = False
        may_pass -= 1
        # Of the window pages it has pinned some now.
        reserve = reserve.plus(growth(req, new_token_ratio, kv))
        token_budget -= req.extend_len
        computing.add(req)
        new.append(req)
    return new


def prefill_rows(prefilling: Sequence[Req], token_budget: int, kv: KVManager) -> list[Row]:
    """Share one step's token budget, and the window pages that are to be had, among admitted
    requests, first come first served; they get the window pages for their parts.

    The one that exceeds what is left gets a chunk of it, in whole pages.
    """
    rows: list[Row] = []
    for req in prefilling:
        # cached_len is a multiple of the page size here, so chunks end at page borders.
        count = kv.step_limit(req)
        if count > token_budget:
            count = token_budget // kv.page_size * kv.page_size
        if count == 0:
            break
        kv.cover(req, req.cached_len + count)
        rows.append(next_row(req, count))
        token_budget -= count
        if count < req.extend_len:
            break
    return rows


def retraction_victim(admitted: Sequence[Req], *, by_priority: bool) -> Req:
    """Who loses least by starting over: the least progress, and of these the latest arrival.

    Args:
        by_priority: of the lowest priority
    """
    lowest = min(req.priority for req in admitted)
    stoppable = [req for req in admitted if req.priority == lowest or not by_priority]
    return min(stoppable, key=lambda req: (req.num_output, -req.arrival))
