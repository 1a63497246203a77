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
from pando_worker.scheduler.batches.batching import Row, StepRows, next_row
from pando_worker.scheduler.batches.decodes import Decodes
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.planning.admission import (
    Admission,
    Reserve,
    reserved,
    retraction_victim,
)
from pando_worker.scheduler.planning.new_token_ratio import MOST_EXPECTED, NewTokenRatio
from pando_worker.scheduler.planning.prompts import PromptBudget, prefill_rows
from pando_worker.scheduler.planning.sharing import Computing
from pando_worker.scheduler.planning.waiting import Verdict, WaitingQueue
from pando_worker.scheduler.req import Req
from pando_worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class Plan:
    """
    Attributes:
        decodes: None in a step without them
        constrained: the running requests with a grammar, which may run several tokens
    """

    decodes: Decodes | None
    constrained: list[Row]
    prefills: list[Row]

    @property
    def step(self) -> StepRows:
        return StepRows(self.decodes, [*self.constrained, *self.prefills])


class Planner:
    def __init__(
        self, settings: WorkerSettings, kv: KVManager, counts: Stats, clock: Callable[[], float]
    ) -> None:
        self.waiting = WaitingQueue(
            settings.schedule_policy, kv.cache, settings.max_passed_over, clock
        )
        self.prefilling: list[Req] = []
        self.running: dict[Req, None] = {}
        # Of those, the ones that the next step gives a token: without a grammar, and with one.
        self.decodes = Decodes(kv.rows)
        self._constrained: dict[Req, None] = {}
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
        constrained = self._constrained_decodes
        if self.prefilling and not self.decodes and not constrained:
            return self._kv.step_limit(self.prefilling[0]) > 0
        if self._kv.windows:
            return self._kv.has_room([*self.decodes.reqs, *constrained])
        return self._kv.has_room(constrained, len(self.decodes.lacking))

    def plan(self, prefills_in_flight: Iterable[Req]) -> Plan:
        """The rows of the next step; their requests have their pages.

        Args:
            prefills_in_flight: requests whose prompts, or chunks of them, are being computed.
        """
        if self.prefill_first:
            prefills = self._prefills(self.prompt_budget(0), prefills_in_flight)
            return Plan(None, [], prefills) if prefills else Plan(*self._decode(), [])
        retracted = self._counts.retracted_requests_total
        decodes, constrained = self._decode()
        if self._counts.retracted_requests_total > retracted:
            return Plan(decodes, constrained, [])  # the freed pages are for running requests
        taken = len(decodes) + sum(row.extend_len for row in constrained)
        prefills = self._prefills(self.prompt_budget(taken), prefills_in_flight)
        return Plan(decodes, constrained, prefills)

    def prompt_budget(self, decodes: int) -> int:
        """Prompt tokens in a step beside `decodes` tokens of running requests; at least a page, so
        that prompts progress however many streams there are."""
        return max(self._settings.chunked_prefill_size - decodes, self._kv.page_size)

    def launched(self, plan: Plan) -> None:
        """Move the requests whose prompts this plan completes to `running`."""
        if plan.decodes:
            plan.decodes.launched()
        for row in plan.prefills:
            if row.is_last:
                self.prefilling.remove(row.req)
            if row.samples:
                self._run(row.req)

    def forget(self, ended: Iterable[Req]) -> None:
        """Remove requests that have ended, wherever they are."""
        for req in ended:
            if req in self.waiting:
                self.waiting.remove(req)
            else:
                self._stop(req)

    def _run(self, req: Req) -> None:
        self.running[req] = None
        if req.grammar is not None:
            self._constrained[req] = None
        elif req.remaining_tokens > 0:
            self.decodes.add(req)

    def _stop(self, req: Req) -> None:
        if req in self.running:
            del self.running[req]
            self.decodes.discard(req)
            self._constrained.pop(req, None)
        elif req in self.prefilling:
            self.prefilling.remove(req)

    @property
    def _holding(self) -> list[Req]:
        """The admitted requests."""
        return [*self.prefilling, *self.running]

    @property
    def _constrained_decodes(self) -> list[Req]:
        return [req for req in self._constrained if req.remaining_tokens > 0]

    def _decode(self) -> tuple[Decodes, list[Row]]:
        """The next tokens of the running requests; retracts some if the pool is too full."""
        retracted = False
        while not self.has_room:
            self._retract(retraction_victim(self._holding, by_priority=self._by_priority))
            retracted = True
        constrained = self._constrained_decodes
        if retracted:
            self.ratio.recover(list(self.running))
        elif self.decodes or constrained:
            self.ratio.decay()
        self._grow(constrained)
        return self.decodes, [next_row(req, req.extend_len) for req in constrained]

    def _grow(self, constrained: list[Req]) -> None:
        """Give running requests the pages that they lack to run their next tokens."""
        if self._kv.windows:
            self._kv.grow([*self.decodes.reqs, *constrained])
            self.decodes.refresh()
            return
        lacking = self.decodes.lacking
        if len(lacking):
            self.decodes.grow(lacking, self._kv.take_pages(len(lacking)))
        self._kv.grow(constrained)

    def _retract(self, req: Req) -> None:
        """Move a request to the front of the queue; its computed prefix stays cached while there is
        room."""
        assert req.in_flight == 0
        self._stop(req)
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
        holding = self._holding
        reserve = Reserve(self._watermark_pages, 0).plus(self._reserved())
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
        if admission.is_out_of_pages:
            room = self._kv.available_pages - admission.reserve.pages
            self._vain = self.waiting.version, room
        elif budget.passes(1):
            self.waiting.admit_shortest(computing, attempt_short)

    def _reserved(self) -> Reserve:
        """Pages to leave free for the expected output of the admitted requests."""
        ratio = self.ratio.value
        if self._kv.windows:
            return reserved(self._holding, ratio, self._kv)
        others = reserved([*self.prefilling, *self._constrained], ratio, self._kv)
        return Reserve(self.decodes.expected_pages(ratio, MOST_EXPECTED), 0).plus(others)

    def _is_vain(self, room: int) -> bool:
        """Whether the first request in line would fail to be admitted as it did before, as no more
        pages are above the reserve."""
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
