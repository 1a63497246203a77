"""`Planner`: holds the queues, chooses the requests of the next step, and retracts some if full.

    waiting ──admit──▶ prefilling ──last chunk launched──▶ running
       ▲                   │                                  │
       └────────────────── retract ───────────────────────────┘

Streams come first: each running request gets its next token, and prompts fill the rest of the
step's token budget. With `prefill-first`, prompts get whole steps instead.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pando_worker.messages import Stats
from pando_worker.scheduler.batches.batching import Row, next_row
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.planning.admission import (
    Admission,
    Reserve,
    reserved,
    retraction_victim,
)
from pando_worker.scheduler.planning.new_token_ratio import NewTokenRatio
from pando_worker.scheduler.planning.prompts import PromptBudget, prefill_rows
from pando_worker.scheduler.planning.sharing import Computing
from pando_worker.scheduler.planning.waiting import Verdict, WaitingQueue
from pando_worker.scheduler.req import Req
from pando_worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class Plan:
    decodes: list[Row]
    prefills: list[Row]

    @property
    def rows(self) -> list[Row]:
        return [*self.decodes, *self.prefills]


class Planner:
    def __init__(
        self, settings: WorkerSettings, kv: KVManager, counts: Stats, clock: Callable[[], float]
    ) -> None:
        self.waiting = WaitingQueue(
            settings.schedule_policy, kv.cache, settings.max_passed_over, clock
        )
        self.prefilling: list[Req] = []
        self.running: list[Req] = []
        self.ratio = NewTokenRatio(settings.new_token_ratio)
        self._settings = settings
        self._kv = kv
        self._counts = counts
        self._clock = clock
        self.prefill_first = settings.batching == "prefill-first"
        self._by_priority = settings.schedule_policy == "priority"
        self._vain = -1, 0  # the queue's version at the last attempt that failed, and the room
        self._watermark_pages = int(settings.watermark * kv.allocator.num_pages)

    @property
    def has_room(self) -> bool:
        """Whether every running request can get pages for its next token or, if none runs, a
        prompt can continue. Otherwise `plan` retracts some requests, for which all their sampled
        tokens must be known."""
        return self._is_room_for(self._ready())

    def plan(self, prefills_in_flight: Iterable[Req]) -> Plan:
        """The rows of the next step; their requests have their pages.

        Args:
            prefills_in_flight: requests whose prompts, or chunks of them, are being computed.
        """
        if self.prefill_first:
            prefills = self._prefills(self.prompt_budget(0), prefills_in_flight)
            return Plan([], prefills) if prefills else Plan(self._decodes(), [])
        retracted = self._counts.retracted_requests_total
        decodes = self._decodes()
        if self._counts.retracted_requests_total > retracted:
            return Plan(decodes, [])  # the freed pages are for running requests
        taken = sum(row.extend_len for row in decodes)
        return Plan(decodes, self._prefills(self.prompt_budget(taken), prefills_in_flight))

    def prompt_budget(self, decodes: int) -> int:
        """Prompt tokens in a step beside `decodes` tokens of running requests; at least a page, so
        that prompts progress however many streams there are."""
        return max(self._settings.chunked_prefill_size - decodes, self._kv.page_size)

    def launched(self, plan: Plan) -> None:
        """Move the requests whose prompts this plan completes to `running`."""
        complete = [row for row in plan.prefills if row.is_last]
        for row in complete:
            self.prefilling.remove(row.req)
        self.running += [row.req for row in complete if row.samples]

    def forget_ended(self, reqs: Iterable[Req]) -> None:
        for req in reqs:
            if req in self.waiting:
                self.waiting.remove(req)
        self.prefilling = [req for req in self.prefilling if req.ending is None]
        self.running = [req for req in self.running if req.ending is None]

    def _decodes(self) -> list[Row]:
        """The next token of each running request; retracts requests if the pool is too full."""
        retracted = False
        while not self._is_room_for(ready := self._ready()):
            holding = [*self.prefilling, *self.running]
            self._retract(retraction_victim(holding, by_priority=self._by_priority))
            retracted = True
        if retracted:
            self.ratio.recover(self.running)
        elif ready:
            self.ratio.decay()
        self._kv.grow(ready)
        return [next_row(req, req.extend_len) for req in ready]

    def _ready(self) -> list[Req]:
        return [req for req in self.running if req.remaining_tokens > 0]

    def _is_room_for(self, ready: list[Req]) -> bool:
        if ready or not self.prefilling:
            return self._kv.has_room(ready)
        return self._kv.step_limit(self.prefilling[0]) > 0

    def _retract(self, req: Req) -> None:
        """Move a request to the front of the queue; its computed prefix stays cached while there is
        room."""
        assert req.in_flight == 0
        (self.running if req in self.running else self.prefilling).remove(req)
        req.hit_when_queued = req.cached_len
        if req.num_output == 0:
            req.prompt_logprobs.clear()
            req.pooled = None
        self._kv.retract_req(req)
        self.waiting.append_retracted(req)
        self._counts.retracted_requests_total += 1

    def _prefills(self, budget: int, in_flight: Iterable[Req]) -> list[Row]:
        self._admit(budget, in_flight)
        return prefill_rows(self.prefilling, budget, self._kv)

    def _admit(self, tokens: int, in_flight: Iterable[Req]) -> None:
        """Admit waiting requests: in the policy's order as long as some of the step's prompt tokens
        are left, and the short ones that pass the prompts that are longer than the step."""
        budget = PromptBudget(tokens, self.prefilling, self._kv.page_size)
        may_run = budget.left > 0 or budget.passes(1)
        if not self.waiting or not may_run or self._kv.rows.num_free == 0:
            return
        holding = [*self.prefilling, *self.running]
        reserve = Reserve(self._watermark_pages, 0).plus(
            reserved(holding, self.ratio.value, self._kv)
        )
        room = self._kv.available_pages - reserve.pages
        if holding and self._is_vain(room):
            return
        computing = Computing([*self.prefilling, *in_flight], self._kv, self.waiting.matches)
        admission = Admission(
            self._kv,
            computing,
            new_token_ratio=self.ratio.value,
            reserve=reserve,
            alone=not holding,
        )

        def attempt(req: Req) -> Verdict:
            if budget.left <= 0 or not admission.admit(req):
                return Verdict.FULL
            return admitted(req)

        def attempt_short(req: Req) -> Verdict:
            if not budget.passes(self.waiting.work(req)):
                return Verdict.NOT_NOW
            return admitted(req) if admission.admit(req) else Verdict.FULL

        def admitted(req: Req) -> Verdict:
            budget.add(req.extend_len)
            self.prefilling.append(req)
            self._count_prompt(req)
            return Verdict.ADMITTED

        self.waiting.admit(computing, attempt)
        if not admission.is_out_of_pages and budget.passes(1):
            self.waiting.admit_shortest(computing, attempt_short)
        if admission.is_out_of_pages:
            room = self._kv.available_pages - admission.reserve.pages
            self._vain = self.waiting.version, room

    def _is_vain(self, room: int) -> bool:
        """Whether the attempt to admit a request would fail as it did before, with as many pages
        above the reserve."""
        if self._kv.windows:
            return False  # it may have failed for want of window pages
        version, vain_room = self._vain
        return room <= 0 or (version == self.waiting.version and room <= vain_room)

    def _count_prompt(self, req: Req) -> None:
        if req.cached_prompt_tokens is None:  # not again after a retraction
            req.cached_prompt_tokens = min(req.cached_len, req.prompt_len)
            req.queue_seconds = self._clock() - req.queued_at
            self._counts.prompt_tokens_total += req.prompt_len
            self._counts.cached_prompt_tokens_total += req.cached_prompt_tokens
