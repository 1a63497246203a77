"""Admits waiting requests, and chooses the victim of a retraction: the request that must stop.

Admission looks ahead: a waiting request starts only if, once it has pages for its prompt, enough
pages stay available for the expected output of all running requests (`new_token_ratio` of their
`max_new_tokens`) and for a watermark. If that estimate was too low, decode retracts requests until
the rest fit; `KVManager.retract_req` takes their pages back.
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
    """Pages that admission must leave free."""

    pages: int
    window_pages: int

    def plus(self, other: "Reserve") -> "Reserve":
        return Reserve(self.pages + other.pages, self.window_pages + other.window_pages)


NOTHING = Reserve(0, 0)


def growth(req: Req, new_token_ratio: float, kv: KVManager) -> Reserve:
    """Pages that a request will probably still need: those for its remaining output, and window
    pages for one window, however long the output is."""
    total = req.num_tokens + math.ceil(still_allowed(req) * new_token_ratio)
    held = req.num_pages if req.is_admitted else kv.pages_for(req.num_tokens)
    window_pages = 0
    if kv.sight:
        most = kv.sight.most(total, req.extend_len)
        window_pages = max(0, most - (req.window_end - req.window_first))
    return Reserve(kv.pages_for(total) - held, window_pages)


def reserved(admitted: Sequence[Req], new_token_ratio: float, kv: KVManager) -> Reserve:
    """Pages to leave free for the expected output of the admitted requests."""
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

    Admission stops at the first request that does not fit: smaller ones that overtake would starve
    it. A request that runs alone always fits, since requests that exceed the pool are refused. A
    request whose prefix is being computed for another one waits for it; a bounded number of later
    requests may overtake it.

    Args:
        token_budget: prompt tokens that this step can still run; the last admitted request may
            exceed it, and then runs in chunks.
        reserve: pages to leave free.
        alone: no other request is running, so the first one may use the reserve.
        max_passed_over: how many later requests may overtake one that waits for a shared prefix.
    """
    new: list[Req] = []
    may_pass: float = math.inf  # requests that may still overtake those that wait for a prefix
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
        # Computed anew: the request has pinned some of its window pages now.
        reserve = reserve.plus(growth(req, new_token_ratio, kv))
        token_budget -= req.extend_len
        computing.add(req)
        new.append(req)
    return new


def prefill_rows(prefilling: Sequence[Req], token_budget: int, kv: KVManager) -> list[Row]:
    """Divide one step's token budget, and the available window pages, among admitted requests,
    first come, first served; allocates the window pages of their rows.

    A request that exceeds the remaining budget gets a chunk of whole pages.
    """
    rows: list[Row] = []
    for req in prefilling:
        # cached_len is a multiple of the page size here, so chunks end on page boundaries.
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
    """The request to retract: the one with the least output, and among equals the latest arrival,
    since it loses least by starting over.

    Args:
        by_priority: choose among the requests of the lowest priority only.
    """
    lowest = min(req.priority for req in admitted)
    stoppable = [req for req in admitted if req.priority == lowest or not by_priority]
    return min(stoppable, key=lambda req: (req.num_output, -req.arrival))
