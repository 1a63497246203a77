"""`Planner`: holds the queues, chooses the requests of the next step, and retracts some if full.

    waiting ──admit──▶ prefilling ──last chunk launched──▶ running
       ▲                   │                                  │
       └────────────────── retract ───────────────────────────┘

Streams come first: each running request gets its next token, and prompts fill the rest of the
step's token budget. With `prefill-first`, prompts get whole steps instead.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from pando_worker.policies.schedule import SCHEDULE_POLICIES
from pando_worker.scheduler.adapters.served import ServedAdapters
from pando_worker.scheduler.batches.batching import Row, StepRows, next_row
from pando_worker.scheduler.batches.decodes import Decodes
from pando_worker.scheduler.images import Images
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.planning.admission import (
    Admission,
    Reserve,
    reserved,
    retraction_victim,
)
from pando_worker.scheduler.planning.encoding import EncoderBudget
from pando_worker.scheduler.planning.new_token_ratio import MOST_EXPECTED, NewTokenRatio
from pando_worker.scheduler.planning.prompts import PromptBudget, prefill_rows
from pando_worker.scheduler.planning.sharing import Computing
from pando_worker.scheduler.planning.waiting import Verdict, WaitingQueue
from pando_worker.scheduler.req import Req
from pando_worker.settings import WorkerSettings
from pando_worker.stats import Stats


@dataclass(frozen=True, slots=True)
class Plan:
    """
    Attributes:
        decodes: None in a step without them
        jumps: the running requests that run several tokens, which a grammar has forced
    """

    decodes: Decodes | None
    jumps: list[Row]
    prefills: list[Row]

    @property
    def step(self) -> StepRows:
        return StepRows(self.decodes, [*self.jumps, *self.prefills])


class Planner:
    def __init__(
        self,
        settings: WorkerSettings,
        kv: KVManager,
        counts: Stats,
        clock: Callable[[], float],
        images: Images | None = None,
        adapters: ServedAdapters | None = None,
    ) -> None:
        policy = SCHEDULE_POLICIES[settings.schedule_policy]
        self.waiting = WaitingQueue(policy, kv, settings.max_passed_over, clock, adapters)
        self.prefilling: list[Req] = []
        self.running: dict[Req, None] = {}
        # Of those, the ones that the next step gives a token: after one other, and after several.
        self.decodes = Decodes(kv.rows, kv.sight)
        self._jumping: dict[Req, None] = {}
        self.ratio = NewTokenRatio(settings.new_token_ratio)
        self._settings = settings
        self._kv = kv
        self._counts = counts
        self._clock = clock
        self._images = images
        self._adapters = adapters
        self.prefill_first = settings.batching == "prefill-first"
        self._by_priority = policy.by_priority
        # The queue's version at the last attempt that failed, and the room, as of `_room`.
        self._vain = -1, 0, 0
        self._watermark_pages = int(settings.watermark * kv.allocator.num_pages)

    @property
    def has_room(self) -> bool:
        """Whether every running request can get pages for its next token or, if none runs, a
        prompt can continue. Otherwise `plan` retracts some requests, for which all their sampled
        tokens must be known."""
        if self.prefilling and not self.decodes and not self._jumping:
            first = self.prefilling[0]
            least = self._images.least(first) if first.images and self._images else 1
            return self._kv.step_limit(first) >= least
        return self._kv.has_room(list(self._jumping), len(self.decodes.lacking))

    def plan(self, prefills_in_flight: Iterable[Req]) -> Plan:
        """The rows of the next step; their requests have their pages.

        Args:
            prefills_in_flight: requests whose prompts, or chunks of them, are being computed.
        """
        if self.prefill_first:
            prefills = self._prefills(self.prompt_budget(0), prefills_in_flight)
            return Plan(None, [], prefills) if prefills else Plan(*self._decode(), [])
        retracted = self._counts.retracted_requests_total
        decodes, jumps = self._decode()
        if self._counts.retracted_requests_total > retracted:
            return Plan(decodes, jumps, [])  # the freed pages are for running requests
        taken = len(decodes) + sum(row.extend_len for row in jumps)
        prefills = self._prefills(self.prompt_budget(taken), prefills_in_flight)
        return Plan(decodes, jumps, prefills)

    def prompt_budget(self, decodes: int) -> int:
        """Prompt tokens in a step beside `decodes` tokens of running requests; at least a page, so
        that prompts progress however many streams there are."""
        return max(self._settings.chunked_prefill_size - decodes, self._kv.page_size)

    def steps_in_vain(self, most: int) -> int:
        """How many of the next steps, at most `most`, admit none of the waiting requests, if no
        prompt is computed and all that changes are the lengths of the running requests. Steps in
        which an admission is attempted do not count."""
        if self._kv.rows.num_free == 0:
            return most
        if self.prefill_first or self._kv.windows or not self.running or self._jumping:
            return 0
        version, vain_pages, _ = self._vain
        if version != self.waiting.version:
            vain_pages = 0
        # What they take from the available pages they no longer need to have reserved.
        room = self._kv.available_pages - self._watermark_pages
        reserved = self.decodes.expected_pages_ahead(self.ratio.ahead(most), MOST_EXPECTED)
        has_more = np.flatnonzero(room - reserved > max(0, vain_pages))
        return int(has_more[0]) if len(has_more) else most

    def launched(self, plan: Plan) -> None:
        """The plan's step was launched: its requests' window pages that no later step reads are
        released, and those whose prompts it completes are running."""
        if plan.decodes:
            plan.decodes.launched()
            passing = plan.decodes.passing
            plan.decodes.discard_full()
        else:
            passing = []
        self._kv.slide([*passing, *(row.req for row in plan.step.rows)])
        for row in plan.jumps:
            del self._jumping[row.req]
            self._run(row.req)
        for row in plan.prefills:
            if row.is_last:
                self.prefilling.remove(row.req)
            if row.samples:
                self.running[row.req] = None
                self._run(row.req)

    def jumped(self, req: Req) -> None:
        """A running request has other known tokens than it had, to run all in one step."""
        self.decodes.discard(req)
        if req.remaining_tokens > 0:
            self._jumping[req] = None

    def forget(self, ended: Iterable[Req]) -> None:
        """Remove requests that have ended, wherever they are."""
        for req in ended:
            if req in self.waiting:
                self.waiting.remove(req)
            else:
                self._stop(req)

    def _run(self, req: Req) -> None:
        if req.remaining_tokens > 0:
            self.decodes.add(req)

    def _stop(self, req: Req) -> None:
        if req in self.running:
            del self.running[req]
            self.decodes.discard(req)
            self._jumping.pop(req, None)
        elif req in self.prefilling:
            self.prefilling.remove(req)

    @property
    def _holding(self) -> list[Req]:
        """The admitted requests."""
        return [*self.prefilling, *self.running]

    def _decode(self) -> tuple[Decodes, list[Row]]:
        """The next tokens of the running requests; retracts some if the pool is too full."""
        retracted = False
        while not self.has_room:
            self._retract(retraction_victim(self._holding, by_priority=self._by_priority))
            retracted = True
        if retracted:
            self.ratio.recover(list(self.running))
        elif self.decodes or self._jumping:
            self.ratio.decay()
        lacking = self.decodes.lacking
        if len(lacking):
            self.decodes.grow(lacking, self._kv.take_pages(len(lacking)))
        self._kv.grow(list(self._jumping))
        return self.decodes, [next_row(req, req.extend_len) for req in self._jumping]

    def _retract(self, req: Req) -> None:
        """Move a request to the front of the queue; its computed prefix stays cached while there is
        room."""
        assert req.in_flight == 0
        self._stop(req)
        req.hit_when_queued, req.unencoded_when_queued = req.cached_len, 0
        if req.num_output == 0:
            req.prompt_logprobs.clear()
            req.pooled = None
            req.aligned.clear()
            req.choices.clear()
        self._kv.retract_req(req)
        self.waiting.append_retracted(req)
        self._counts.retracted_requests_total += 1

    def _prefills(self, budget: int, in_flight: Iterable[Req]) -> list[Row]:
        self._admit(budget, in_flight)
        return prefill_rows(self.prefilling, budget, self._kv, self._images)

    def _admit(self, tokens: int, in_flight: Iterable[Req]) -> None:
        """Admit waiting requests: in the policy's order as long as some of the step's prompt tokens
        are left, and the short ones that pass the prompts that are longer than the step."""
        work = [req.extend_len for req in self.prefilling]
        budget = PromptBudget(tokens, work, self._kv.page_size)
        may_run = budget.left > 0 or budget.passes(1)
        if not self.waiting or not may_run or self._kv.rows.num_free == 0:
            return
        holding = self._holding
        reserve = Reserve(self._watermark_pages, 0).plus(self._reserved())
        if holding and self._is_vain(*self._room(reserve)):
            return
        computing = Computing([*self.prefilling, *in_flight], self._kv, self.waiting.matches)
        admission = Admission(
            self._kv,
            computing,
            new_token_ratio=self.ratio.value,
            reserve=reserve,
            alone=not holding,
        )

        encoder = self._encoder_budget(tokens)

        def attempt(req: Req) -> Verdict:
            if budget.left <= 0 or (self._kv.whole_prompts and not budget.takes_whole(req)):
                return Verdict.FULL
            if encoder and not encoder.has_room(req):
                return Verdict.NOT_NOW if encoder.passes() else Verdict.FULL
            if self.waiting.lacks_slot(req):
                return Verdict.NO_SLOT
            return admitted(req) if admission.admit(req) else Verdict.FULL

        def attempt_short(req: Req) -> Verdict:
            if not budget.passes(self.waiting.work(req)):
                return Verdict.NOT_NOW
            if encoder and not encoder.has_room(req):
                return Verdict.NOT_NOW
            if self.waiting.lacks_slot(req):
                return Verdict.NO_SLOT
            return admitted(req) if admission.admit(req) else Verdict.FULL

        def admitted(req: Req) -> Verdict:
            if self._adapters and req.adapter and req.slot < 0:
                self._adapters.hold(req)
            budget.add(req.extend_len)
            self.prefilling.append(req)
            self._count_prompt(req)
            return Verdict.ADMITTED

        self.waiting.admit(computing, attempt)
        if admission.is_out_of_pages:
            self._vain = self.waiting.version, *self._room(admission.reserve)
        elif budget.passes(1) and not self._kv.whole_prompts:
            self.waiting.admit_shortest(computing, attempt_short)

    def _encoder_budget(self, tokens: int) -> EncoderBudget | None:
        """
        Args:
            tokens: of prompts, in the step
        """
        if self._kv.sources is None:
            return None
        return EncoderBudget(self._kv.sources, min(self._settings.encoder_tokens_per_step, tokens))

    def _reserved(self) -> Reserve:
        """Pages to leave free for the expected output of the admitted requests."""
        ratio = self.ratio.value
        others = reserved([*self.prefilling, *self._jumping], ratio, self._kv)
        return Reserve(*self.decodes.expected_pages(ratio, MOST_EXPECTED)).plus(others)

    def _room(self, reserve: Reserve) -> tuple[int, int]:
        """Pages, and window pages, that are available above a reserve."""
        windows = self._kv.windows
        window_pages = windows.available - reserve.window_pages if windows else 0
        return self._kv.available_pages - reserve.pages, window_pages

    def _is_vain(self, pages: int, window_pages: int) -> bool:
        """Whether the first request in line would fail to be admitted as it did before, as there is
        no more room."""
        version, vain_pages, vain_window_pages = self._vain
        is_same = version == self.waiting.version
        no_more = pages <= vain_pages and window_pages <= vain_window_pages
        return pages <= 0 or (is_same and no_more)

    def _count_prompt(self, req: Req) -> None:
        if req.cached_prompt_tokens is None:  # not again after a retraction
            req.cached_prompt_tokens = min(req.cached_len, req.prompt_len)
            req.queue_seconds = self._clock() - req.queued_at
            self._counts.prompt_tokens_total += req.prompt_len
            self._counts.cached_prompt_tokens_total += req.cached_prompt_tokens
            self._counts.prompts_total += 1
            self._counts.computed_squares_total += (req.prompt_len - req.cached_prompt_tokens) ** 2
