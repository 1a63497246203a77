"""`Scheduler`: continuous batching over the KV pool, one step at a time.

It does no I/O: `receive` takes commands, `step` launches one batch on the model runner and takes
the result of another, and both return the events to send. Processes and sockets are in
`engine/process.py`; the clock and the runner are arguments, so the fleet simulator runs the same
code.

A request is compiling (its grammar), then in one of the planner's queues, then ended.

With overlap, a call of `step` launches batch N + 1 before it looks at the result of batch N, so
that the device never waits for the scheduler:

    step k      launch N+1 │ take in N │ masks for N+1
    device      ── N ──────┴──── N+1 ──────────────────

Two things need the tokens of N and so wait for them: a grammar's mask, which delays only the
sampling of N + 1, and a retraction, which is rare.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pando_worker.batch import ModelRunner, Step, StepResult
from pando_worker.grammar.errors import GrammarError
from pando_worker.grammar.speech import SpeechGrammar
from pando_worker.messages import (
    Abort,
    AdapterRefused,
    Align,
    Aligned,
    CacheFlushed,
    Command,
    Embed,
    Embedded,
    Event,
    FlushCache,
    Generate,
    LoadAdapter,
    Output,
    Outputs,
    PinAdapter,
    Rejected,
    UnloadAdapter,
    Verified,
    Verify,
)
from pando_worker.pools import SourceForm
from pando_worker.scheduler.adapters.served import ServedAdapters
from pando_worker.scheduler.arrivals import Arriving, array_bytes, grammar_of, make_req, misfit
from pando_worker.scheduler.batches.batching import BatchBuilder, Row
from pando_worker.scheduler.batches.constrained import (
    OutputGrammarCompiler,
    build_mask,
)
from pando_worker.scheduler.batches.context_cost import attended
from pando_worker.scheduler.batches.outputs import take_result, take_token
from pando_worker.scheduler.batches.results import read_decodes, read_results
from pando_worker.scheduler.compiling import Compiling, set_grammar
from pando_worker.scheduler.departures import Departures
from pando_worker.scheduler.images import Images, runs_any
from pando_worker.scheduler.meter import Meter
from pando_worker.scheduler.open_requests import OpenRequests
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.planning.planner import Planner
from pando_worker.scheduler.req import Ending, Req
from pando_worker.scheduler.stride import Stride, plan_stride
from pando_worker.settings import WorkerSettings
from pando_worker.stats import Stats

log = logging.getLogger("pando.worker.scheduler")

MAX_ARRAY_BYTES = 2**30
"""Of all images and sources here; further ones get 503."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A batch in flight on the device."""

    step: Step
    decodes: list[Req]  # first in the batch, then `rows`
    rows: Sequence[Row]
    prefills: Sequence[Row]  # the last of `rows`
    is_constrained: bool  # a grammar decides what some of them may sample
    at: float
    encoded: int  # positions of sources

    @property
    def sampled(self) -> list[Req]:
        """Those that yield a token, in the order of the batch."""
        return [*self.decodes, *(row.req for row in self.rows if row.samples)]


class Scheduler:
    def __init__(
        self,
        settings: WorkerSettings,
        kv: KVManager,
        runner: ModelRunner,
        batches: BatchBuilder,
        grammars: OutputGrammarCompiler | None = None,
        clock: Callable[[], float] = time.monotonic,
        images: Images | None = None,
        adapters: ServedAdapters | None = None,
        source: SourceForm | None = None,
    ) -> None:
        """
        Args:
            batches: makes the runner's batches.
            grammars: None rejects requests that carry one.
            clock: seconds.
            images: None rejects requests that carry any.
            adapters: None rejects requests that name one.
            source: of an encoder-decoder.
        """
        self.kv = kv
        self._batches = batches
        self._settings = settings
        self._runner = runner
        self._grammars = grammars
        self._clock = clock
        self.meter = Meter()
        kv.prefill_rate = self.meter.prefill_rate
        self._images = images
        self._adapters = adapters
        self._source = source
        self.planner = Planner(settings, kv, self.meter.counts, clock, images, adapters)
        self._compiling = Compiling()
        self._open = OpenRequests()
        self.in_flight: Launched | None = None
        self._events: list[Event] = []  # of the step that runs
        self._departures = Departures(self._open, kv, adapters, self.meter.counts, self._events)
        self._arrivals = 0
        self._taken_in_at = -math.inf

    @property
    def is_idle(self) -> bool:
        return not self._open and self.in_flight is None

    @property
    def only_waits(self) -> bool:
        """Whether the only pending work is that of other threads: grammars and adapters."""
        if self.is_idle:
            return self._adapters is not None and self._adapters.is_busy
        waiting = len(self._compiling) + self.planner.waiting.num_slotless
        return self.in_flight is None and waiting == len(self._open)

    @property
    def _num_queued(self) -> int:
        return len(self.planner.waiting) + len(self._compiling)

    def receive(self, command: Command) -> list[Event]:
        match command:
            case Generate() | Embed() | Align() | Verify():
                return self._enqueue(command)
            case Abort(rid=rid):
                self._departures.abort(rid)
                return []
            case FlushCache(call=call):
                if self.is_idle:
                    self.kv.flush()
                return [CacheFlushed(call=call, done=self.is_idle)]
            case LoadAdapter() | PinAdapter() | UnloadAdapter():
                if self._adapters is None:
                    message = "this worker serves no adapters: set max_loras"
                    return [AdapterRefused(call=command.call, status=400, message=message)]
                return self._adapters.receive(command)

    def step(self) -> list[Event]:
        """Launch one batch, if there is anything to run, and return the events of another."""
        if ended := self._departures.end_unwanted(self._clock()):
            self._compiling.cancel_ended()
            self.planner.forget(ended)
        self._queue_compiled()
        if self._adapters:
            self._tend(self._adapters)
        if self.in_flight and not self.planner.has_room:
            self._take_result(self.in_flight)
        launched = self._launch()
        if self.in_flight:
            self._take_result(self.in_flight)
        self.in_flight = launched
        if launched and self._grammars and launched.is_constrained:
            launched.step.sample(build_mask(launched.sampled, self._grammars))
        if launched and not self._settings.overlap_schedule:
            self._take_result(launched)
        if self.is_idle:
            self.kv.check_idle()
            if self._adapters:
                self._adapters.check_idle()
            self.planner.ratio.reset()
        events = self._events.copy()
        self._events.clear()
        return events

    def stride(self, most: int) -> Stride | None:
        """The next steps, at most `most`, to be taken at once; None if the next two cannot be
        predicted, and with overlap."""
        is_open = self.in_flight or self._departures.are_pending or self._compiling
        loads = self._adapters is not None and self._adapters.is_busy
        loads = loads or self.planner.waiting.num_slotless > 0  # whose loads a step may start
        if is_open or loads or self._open.have_deadlines or self._settings.overlap_schedule:
            return None
        return plan_stride(self.planner, self.kv, self.meter, most)

    def stats(self) -> Stats:
        stats, queues = self.meter.stats(), self.planner
        stats.running = len(queues.prefilling) + len(queues.running)
        stats.waiting = self._num_queued
        stats.waiting_tokens = queues.waiting.prompt_tokens
        stats.waiting_output_tokens = math.ceil(queues.ratio.value * queues.waiting.output_tokens)
        self._put_begun(stats)
        self.kv.put_stats(stats)
        if self._adapters:
            self._adapters.put_stats(stats)
        return stats

    def _put_begun(self, stats: Stats) -> None:
        launched = [row.req for row in self.in_flight.prefills] if self.in_flight else []
        for req in {*self.planner.prefilling, *launched}:
            if req.num_known == req.prompt_len:
                found = req.cached_prompt_tokens or 0
                # Less than at first is cached for one that starts again.
                computed = max(0, req.cached_len - found)
                stats.begun_tokens += computed
                stats.begun_context += attended(found, computed)

    # Requests arrive

    def _enqueue(self, command: Arriving) -> list[Event]:
        if problem := self._refusal(command):
            status, message = problem
            return [Rejected(rid=command.rid, status=status, message=message)]
        req = make_req(
            command,
            arrival=self._arrivals,
            now=self._clock(),
            page_size=self.kv.page_size,
            images_are_whole=self._images is not None and self._images.are_whole,
        )
        req.hit_when_queued = self.kv.prefix_len(req.tokens(req.num_known), req.namespace)
        if req.source and self.kv.sources and not self.kv.sources.is_cached(req.source):
            req.unencoded_when_queued = req.source.length
        self._arrivals += 1
        self._open.add(req)
        if req.rules and self._source:
            req.grammar = SpeechGrammar(req.rules, self._source.vocab_size)
            for token in req.tokens(req.num_known)[req.prompt_len :].tolist():
                req.grammar.accept(token)
        if (grammar := grammar_of(command)) and self._grammars:
            self._compiling.add(req, self._grammars.compile(grammar, req.namespace))
        else:
            self.planner.waiting.append(req)
        return []

    def _refusal(self, command: Arriving) -> tuple[int, str] | None:
        """Why a request is rejected: status and message; None if it is accepted."""
        if self._open.get(command.rid):
            return 400, f"request id {command.rid!r} is already in use"
        problem = misfit(
            command,
            max_request_tokens=self.kv.max_request_tokens,
            has_grammars=self._grammars is not None,
            has_images=self._images is not None,
            source=self._source,
        )
        if problem:
            return 400, problem
        if (
            not isinstance(command, Align | Verify)
            and command.adapter
            and (self._adapters is None or command.adapter not in self._adapters)
        ):
            return 404, "its adapter is not loaded"
        if added := array_bytes(command):
            held = self._open.array_bytes
            if held + added > MAX_ARRAY_BYTES:
                return 503, f"requests here have {held} bytes of inputs already; try again later"
        if self._num_queued >= self._settings.max_queued_requests:
            return 503, f"{self._num_queued} requests are already waiting; try again later"
        return None

    def _queue_compiled(self) -> None:
        for req, grammar in self._compiling.take_done():
            try:
                set_grammar(req, grammar)
            except GrammarError as error:
                self._departures.reject(req, 400, str(error))
            except Exception:  # any failure concerns this request only
                log.exception("the grammar of request %s could not be compiled", req.rid)
                self._departures.reject(req, 500, "the grammar could not be compiled")
            else:
                self.planner.waiting.append(req)

    def _tend(self, adapters: ServedAdapters) -> None:
        waiting = self.planner.waiting
        self._events += adapters.tend(waiting.line, waiting.awaits, self._open.use)
        for identity in adapters.take_opened():
            waiting.opened(identity)
        for failed in adapters.take_failed():
            reqs = waiting.slotless(failed.identity)
            self.planner.forget(reqs)
            for req in reqs:
                self._departures.reject(req, 502, failed.message)

    # Batches run

    def _launch(self) -> Launched | None:
        computing = [row.req for row in self.in_flight.prefills] if self.in_flight else []
        plan = self.planner.plan(computing)
        step_rows = plan.step
        if not len(step_rows):
            return None
        started = self._clock()
        batch = self._batches.build(step_rows)
        self.kv.put_copies(batch)
        if self._images:
            batch.images = self._images.tokens_of(step_rows.rows, step_rows.num_decodes, batch)
        step = self._runner.launch(batch)
        rows = step_rows.rows
        is_constrained = bool(plan.decodes and plan.decodes.constrained) or any(
            row.req.grammar is not None and row.samples for row in rows
        )
        if not is_constrained:
            step.sample(None)
        decodes = list(plan.decodes.reqs) if plan.decodes else []
        for row in rows:
            row.req.cached_len = row.end
            row.req.in_flight += 1
            row.req.unseen += row.samples
        self.planner.launched(plan)
        encoded = batch.sources.num_positions if batch.sources else 0
        return Launched(step, decodes, rows, plan.prefills, is_constrained, started, encoded)

    def _take_result(self, launched: Launched) -> None:
        """Wait for a batch's result and apply it."""
        self.in_flight = None
        result = launched.step.result()
        pinned = self.kv.pinned_tokens
        outputs: list[Output] = []
        ended: list[Req] = []
        self._take_decodes(launched, result, outputs, ended)
        self._take_rows(launched, result, outputs, ended)
        for req in ended:
            if req.in_flight == 0 and req.is_admitted:
                self._departures.release(req)
        self.planner.forget(ended)
        if outputs:
            self._events.append(Outputs(outputs))
            self.meter.counts.output_tokens_total += sum(len(o.token_ids) for o in outputs)

        now = self._clock()
        self.meter.add_step(
            rows=len(launched.decodes) + len(launched.rows),
            prefill_tokens=launched.encoded + sum(row.extend_len for row in launched.prefills),
            prefill_context=sum(row.context for row in launched.prefills),
            decodes=len(launched.decodes) + len(launched.rows) - len(launched.prefills),
            released=max(0, pinned - self.kv.pinned_tokens),
            seconds=now - max(launched.at, self._taken_in_at),
        )
        self._taken_in_at = now

    def _take_decodes(
        self, launched: Launched, result: StepResult, outputs: list[Output], ended: list[Req]
    ) -> None:
        found = read_decodes(launched.decodes, result)
        for req, (token, logprob) in zip(launched.decodes, found, strict=True):
            req.in_flight -= 1
            if req.stale:
                req.stale = False
                if req.ending is not None:
                    ended.append(req)
                continue
            req.unseen -= 1
            was_open = req.ending is None
            if was_open and (output := take_token(req, token, logprob)):
                outputs.append(output)
            if req.ending is not None:
                ended.append(req)
                if was_open:
                    self._departures.settle(req)
            elif launched.is_constrained and req.has_jumped:
                self.planner.jumped(req)

    def _take_rows(
        self, launched: Launched, result: StepResult, outputs: list[Output], ended: list[Req]
    ) -> None:
        results = read_results(launched.rows, result, len(launched.decodes))
        num_jumps = len(launched.rows) - len(launched.prefills)
        failed_images = result.failed_images
        if self._images:
            self._images.failed(failed_images)
        for index, (row, found) in enumerate(zip(launched.rows, results, strict=True)):
            req = row.req
            req.in_flight -= 1
            stale, req.stale = req.stale, False
            if not stale:
                req.unseen -= row.samples
            if req.ending is None and not stale and runs_any(row, failed_images):
                req.ending = Ending.FAILED
                self._departures.reject(req, 500, "the vision tower failed on one of its images")
            elif req.ending is None and not stale:
                match take_result(row, found):
                    case Output() as output:
                        outputs.append(output)
                    case Embedded() | Aligned() | Verified() as answer:
                        self._events.append(answer)
                self._departures.settle(req)
            if req.ending is not None:
                ended.append(req)
                continue
            if row.samples and req.has_jumped:
                self.planner.jumped(req)
            if index >= num_jumps:
                self.kv.cache_unfinished_req(req, row.end)
