"""Which waiting requests start, and which running ones have to stop.

Admission looks ahead: a waiting request starts only if, after it got pages for its prompt, enough
stay available for what all running requests are expected to produce, `new_token_ratio` of their
`max_new_tokens`, and a watermark besides. Where that guess was too low, decode retracts requests
until the rest fits.
"""

import math
from collections.abc import Iterable, Sequence

from pando_worker.scheduler.batching import Row, next_row
from pando_worker.scheduler.kv_manager import KVManager
from pando_worker.scheduler.req import Req
from pando_worker.scheduler.sharing import Computing


def growth_pages(req: Req, new_token_ratio: float, kv: KVManager) -> int:
    """Pages that a request is expected to take beyond those it holds, or is about to get."""
    expected = math.ceil(req.remaining_tokens * new_token_ratio)
    held = req.num_pages if req.is_admitted else kv.pages_for(req.num_tokens)
    return kv.pages_for(req.num_tokens + expected) - held


def reserved_pages(admitted: Sequence[Req], new_token_ratio: float, kv: KVManager) -> int:
    """Pages to keep available for what the admitted requests are expected to produce."""
    return sum(growth_pages(req, new_token_ratio, kv) for req in admitted)


def admit(
    candidates: Iterable[Req],
    kv: KVManager,
    computing: Computing,
    *,
    token_budget: int,
    new_token_ratio: float,
    reserve: int,
    alone: bool,
) -> list[Req]:
    """Admit waiting requests in order until tokens, rows or pages run out; returns the admitted.

    The first that does not fit stops it: letting smaller ones pass would starve it. A request that
    is alone always fits, since none is accepted that exceeds the pool. One whose prefix is just
    being computed for another waits for that without stopping those behind it.

    Args:
        token_budget: prompt tokens still to be filled in this step; the last request admitted may
            exceed it, and is then run in chunks.
        reserve: pages to leave available.
        alone: no other request is admitted: then the reserve does not count for the first.
    """
    new: list[Req] = []
    for req in candidates:
        if token_budget <= 0 or kv.rows.num_free == 0:
            break
        if computing.shares(req):
            continue
        growth = growth_pages(req, new_token_ratio, kv)
        if not kv.admit(req, 0 if alone else reserve + growth):
            break
        alone = False
        reserve += growth
        token_budget -= req.extend_len
        computing.add(req)
        new.append(req)
    return new


def prefill_rows(prefilling: Sequence[Req], token_budget: int, page_size: int) -> list[Row]:
    """Share one step's token budget among admitted requests, first come first served.

    The one that exceeds what is left gets a chunk of it, in whole pages.
    """
    rows: list[Row] = []
    for req in prefilling:
        count = req.extend_len
        if count > token_budget:
            # cached_len is a multiple of the page size here, so chunks end at page borders.
            count = token_budget // page_size * page_size
        if count == 0:
            break
        rows.append(next_row(req, count))
        token_budget -= count
    return rows


def retraction_victim(admitted: Sequence[Req]) -> Req:
    """Who loses least by starting over: the least progress, and of these the latest arrival."""
    return min(admitted, key=lambda req: (req.num_output, -req.arrival))
