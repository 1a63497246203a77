"""Which requests a step runs: prefills within a token budget, or one token for each running one.

Admission looks ahead: a waiting request starts only if, after it got pages for its prompt, enough
stay available for what all running requests are expected to produce, `new_token_ratio` of their
`max_new_tokens`. Where that guess was too low, decode retracts requests until the rest fits.
"""

import math
from collections.abc import Sequence

from pando_worker.scheduler.batching import Row
from pando_worker.scheduler.kv_manager import KVManager
from pando_worker.scheduler.req import Req


def growth_pages(req: Req, new_token_ratio: float, kv: KVManager) -> int:
    """Pages that a request is expected to take beyond those it holds, or is about to get."""
    expected = math.ceil(req.remaining_tokens * new_token_ratio)
    held = req.num_pages if req.is_admitted else kv.pages_for(req.num_tokens)
    return kv.pages_for(req.num_tokens + expected) - held


def admit(
    candidates: Sequence[Req],
    admitted: Sequence[Req],
    kv: KVManager,
    *,
    token_budget: int,
    new_token_ratio: float,
) -> list[Req]:
    """Admit waiting requests in order until tokens, rows or pages run out; returns the admitted.

    The first that does not fit stops it: letting smaller ones pass would starve it. A request that
    is alone always fits, since none is accepted that exceeds the pool.

    Args:
        admitted: the requests that already run.
        token_budget: prompt tokens still to be filled in this step; the last request admitted may
            exceed it, and is then run in chunks.
    """
    new: list[Req] = []
    reserve = sum(growth_pages(req, new_token_ratio, kv) for req in admitted)
    for req in candidates:
        if token_budget <= 0:
            break
        reserve += growth_pages(req, new_token_ratio, kv)
        alone = not admitted and not new
        if not kv.admit(req, 0 if alone else reserve):
            break
        token_budget -= req.extend_len
        new.append(req)
    return new


def prefill_rows(prefilling: Sequence[Req], chunked_prefill_size: int, page_size: int) -> list[Row]:
    """Share one step's token budget among admitted requests, first come first served.

    The one that exceeds what is left gets a chunk of it, in whole pages.
    """
    rows: list[Row] = []
    budget = chunked_prefill_size
    for req in prefilling:
        count = req.extend_len
        if count > budget:
            # cached_len is a multiple of the page size here, so chunks end at page borders.
            count = budget // page_size * page_size
        if count == 0:
            break
        rows.append(Row(req, count))
        budget -= count
    return rows


def retraction_victim(running: Sequence[Req], kv: KVManager) -> Req | None:
    """The request to retract because the pool cannot hold another token of each running one.

    Least progress first, of equals the youngest: it loses the least. None when all fit, which a
    request that is alone always does.
    """
    missing = sum(kv.pages_missing(req) for req in running)
    if missing <= kv.available_pages:
        return None
    return min(running, key=lambda req: (len(req.output), -req.arrival))
