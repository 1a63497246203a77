"""Admits waiting requests, and chooses the victim of a retraction: the request that must stop.

Admission looks ahead: a waiting request starts only if, once it has pages for its prompt, enough
pages stay available for the expected output of all running requests (`new_token_ratio` of their
`max_new_tokens`) and for a watermark. If that estimate was too low, decode retracts requests until
the rest fit; `KVManager.retract_req` takes their pages back.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

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


class Admission:
    """The admissions of one step.

    Attributes:
        reserve: pages that they leave free
        is_out_of_pages: whether a request did not fit
    """

    def __init__(
        self,
        kv: KVManager,
        computing: Computing,
        *,
        new_token_ratio: float,
        reserve: Reserve,
        alone: bool,
    ) -> None:
        """
        Args:
            computing: gets the prefixes of the admitted requests.
            alone: no other request is running, so the first one may use the reserve.
        """
        self.reserve = reserve
        self.is_out_of_pages = False
        self._kv = kv
        self._computing = computing
        self._new_token_ratio = new_token_ratio
        self._alone = alone

    def admit(self, req: Req) -> bool:
        """Admit a request if there is a row, and pages for its prompt and its expected output.

        If there are not, no other one may be admitted in this step: smaller ones that overtake
        would starve it. A request that runs alone always fits, since requests that exceed the pool
        are refused.
        """
        after = self.reserve.plus(growth(req, self._new_token_ratio, self._kv))
        if not self._kv.admit(req, *(NOTHING if self._alone else after)):
            self.is_out_of_pages = True
            return False
        self._alone = False
        # Computed anew: the request has pinned some of its window pages now.
        self.reserve = self.reserve.plus(growth(req, self._new_token_ratio, self._kv))
        self._computing.add(req)
        return True


def retraction_victim(admitted: Sequence[Req], *, by_priority: bool) -> Req:
    """The request to retract: the one with the least output, and among equals the latest arrival,
    since it loses least by starting over.

    Args:
        by_priority: choose among the requests of the largest `priority` only, the last to run.
    """
    last = max(req.priority for req in admitted)
    stoppable = [req for req in admitted if req.priority == last or not by_priority]
    return min(stoppable, key=lambda req: (req.num_output, -req.arrival))
