"""`Departures`: how requests end, and what they leave: answers, pages, slots.

A request ends when a result ends it, when it is refused, when its client leaves, or when its
deadline passes. It is released once no launched batch has a row of it: until then it is the only
owner of its pages. `Ending` says when it is answered.
"""

from pando_worker.messages import Event, FinishReason, Outputs, Rejected
from pando_worker.scheduler.adapters.served import ServedAdapters
from pando_worker.scheduler.batches.outputs import last_output
from pando_worker.scheduler.open_requests import OpenRequests
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.req import Ending, Req
from pando_worker.stats import Stats


class Departures:
    def __init__(
        self,
        open_requests: OpenRequests,
        kv: KVManager,
        adapters: ServedAdapters | None,
        counts: Stats,
        events: list[Event],
    ) -> None:
        """
        Args:
            open_requests: which requests leave with their answers
            adapters: whose slots requests hold; None without any
            counts: of requests that finished or were aborted
            events: to send; answers are appended
        """
        self._open = open_requests
        self._kv = kv
        self._adapters = adapters
        self._counts = counts
        self._events = events
        self._unwanted: list[Req] = []  # aborted since the last step

    @property
    def are_pending(self) -> bool:
        """Whether aborted requests await the next step."""
        return bool(self._unwanted)

    def abort(self, rid: str) -> None:
        """At the next step, unless it has been answered by then."""
        if req := self._open.get(rid):
            self._unwanted.append(req)

    def end_unwanted(self, now: float) -> list[Req]:
        """End the aborted requests and those whose deadline has passed; returns both."""
        ended = [(req, Ending.ABORTED) for req in self._unwanted]
        self._unwanted = []
        ended += [(req, Ending.LATE) for req in self._open.late(now)]
        for req, ending in ended:
            if req.ending is None:
                req.ending = ending
                if req.in_flight == 0:
                    self.release(req)
        return [req for req, _ in ended]

    def release(self, req: Req) -> None:
        """Release an ended request's pages and slot, which no launched step needs any more."""
        if req.is_admitted and req.ending is Ending.FAILED:
            self._kv.discard_failed_req(req)
        elif req.is_admitted:
            # The last sampled token may have been dropped, and with it all that ran after it.
            self._kv.cache_finished_req(req, min(req.cached_len, req.num_known))
        if self._adapters:
            self._adapters.release(req)
        if req.ending is Ending.ABORTED:
            self._counts.aborted_requests_total += 1
            self._open.remove(req)
            self._events.append(Outputs([last_output(req, FinishReason.ABORT)]))
        elif req.ending is Ending.LATE:
            passed = f"its deadline passed after {req.deadline - req.queued_at:.3g} s"
            self.reject(req, 504, f"{passed}, with {req.num_output} tokens produced")

    def settle(self, req: Req) -> None:
        """Answer a request that a result has ended."""
        if req.ending is Ending.FINISHED:
            self._counts.finished_requests_total += 1
            self._open.remove(req)
        elif req.ending is Ending.FAILED:
            self.reject(req, 500, "the logits were not finite, or the grammar allowed no token")

    def reject(self, req: Req, status: int, message: str) -> None:
        self._open.remove(req)
        self._events.append(Rejected(rid=req.rid, status=status, message=message))
