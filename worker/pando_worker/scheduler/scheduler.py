"""`Scheduler`: continuous batching over the KV pool, one step at a time.

It is pure bookkeeping: commands go in by `receive`, `step` runs one batch through the model runner,
and both return the events to send. Processes and sockets are in `process.py`; the clock and the
runner are arguments, so the same code runs under the fleet simulator.

A request moves through three ordered queues, and is in exactly one of them:

    waiting ──admit──▶ prefilling ──last chunk──▶ running ──▶ finished
       ▲                                            │
       └───────────────── retract ──────────────────┘
"""

import time
from collections import deque
from collections.abc import Callable

import numpy as np

from pando_worker.messages import (
    Abort,
    CacheFlushed,
    Command,
    Event,
    FinishReason,
    FlushCache,
    Generate,
    Output,
    Outputs,
    Rejected,
    Stats,
)
from pando_worker.runner.batch import ModelRunner
from pando_worker.scheduler.admission import admit, prefill_rows, retraction_victim
from pando_worker.scheduler.batching import Row, build_batch
from pando_worker.scheduler.kv_manager import KVManager
from pando_worker.scheduler.policy import order
from pando_worker.scheduler.rates import Rate
from pando_worker.scheduler.req import Req
from pando_worker.settings import WorkerSettings


class Scheduler:
    def __init__(
        self,
        settings: WorkerSettings,
        kv: KVManager,
        runner: ModelRunner,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kv = kv
        self._settings = settings
        self._runner = runner
        self._clock = clock
        self.waiting: deque[Req] = deque()
        self.prefilling: list[Req] = []
        self.running: list[Req] = []
        self._by_rid: dict[str, Req] = {}
        self._arrivals = 0
        self._abort_asked = False

        self._prefill_rate = Rate()
        self._decode_rate = Rate()
        self._release_rate = Rate()
        self._steps = 0
        self._prompt_tokens = 0
        self._cached_prompt_tokens = 0
        self._output_tokens = 0
        self._finished = 0
        self._aborted = 0
        self._retracted = 0

    @property
    def is_idle(self) -> bool:
        return not self._by_rid

    def receive(self, command: Command) -> list[Event]:
        match command:
            case Generate():
                return self._enqueue(command)
            case Abort(rid=rid):
                if req := self._by_rid.get(rid):
                    req.aborted = self._abort_asked = True
                return []
            case FlushCache(call=call):
                if self.is_idle:
                    self.kv.flush()
                return [CacheFlushed(call=call, done=self.is_idle)]

    def step(self) -> list[Event]:
        """Run one batch, if there is anything to run, and return what it produced."""
        events = self._end_aborted() if self._abort_asked else []
        if rows := self._prefill_rows():
            events += self._run(rows, self._prefill_rate)
        elif rows := self._decode_rows():
            events += self._run(rows, self._decode_rate)
        if self.is_idle:
            self.kv.check_idle()
        return events

    def stats(self) -> Stats:
        return Stats(
            running=len(self.prefilling) + len(self.running),
            waiting=len(self.waiting),
            waiting_tokens=sum(req.num_tokens - req.hit_when_queued for req in self.waiting),
            capacity_tokens=self.kv.capacity_tokens,
            pinned_tokens=self.kv.pinned_tokens,
            cached_tokens=self.kv.cached_tokens,
            prefill_tokens_per_s=self._prefill_rate.per_second,
            decode_tokens_per_s=self._decode_rate.per_second,
            release_tokens_per_s=self._release_rate.per_second,
            steps_total=self._steps,
            prompt_tokens_total=self._prompt_tokens,
            cached_prompt_tokens_total=self._cached_prompt_tokens,
            output_tokens_total=self._output_tokens,
            finished_requests_total=self._finished,
            aborted_requests_total=self._aborted,
            retracted_requests_total=self._retracted,
            evicted_tokens_total=self.kv.evicted_tokens,
        )

    def _enqueue(self, command: Generate) -> list[Event]:
        total = len(command.input_ids) + command.sampling.max_new_tokens
        problem = None
        if command.rid in self._by_rid:
            problem = (400, f"request id {command.rid!r} is already in use")
        elif not command.input_ids:
            problem = (400, "the prompt has no tokens")
        elif total > self.kv.max_request_tokens:
            problem = (
                400,
                f"the prompt's {len(command.input_ids)} tokens and max_tokens"
                f" {command.sampling.max_new_tokens} together exceed this worker's limit of"
                f" {self.kv.max_request_tokens} tokens",
            )
        elif len(self.waiting) >= self._settings.max_queued_requests:
            problem = (503, f"{len(self.waiting)} requests are waiting already, try again later")
        if problem:
            status, message = problem
            return [Rejected(rid=command.rid, status=status, message=message)]

        prompt = np.array(command.input_ids, dtype=np.int32)
        req = Req(
            rid=command.rid,
            prompt=prompt,
            sampling=command.sampling,
            arrival=self._arrivals,
            hit_when_queued=self.kv.cache.prefix_len(prompt),
        )
        self._arrivals += 1
        self._by_rid[req.rid] = req
        self.waiting.append(req)
        return []

    def _prefill_rows(self) -> list[Row]:
        """Admit what fits and fill the token budget with prefills; empty when there are none."""
        budget = self._settings.chunked_prefill_size - sum(r.extend_len for r in self.prefilling)
        if self.waiting and budget > 0 and self.kv.rows.num_free:
            admitted = admit(
                order(self.waiting, self._settings.schedule_policy, self.kv.cache),
                self.prefilling + self.running,
                self.kv,
                token_budget=budget,
                new_token_ratio=self._settings.new_token_ratio,
            )
            for req in admitted:
                self.waiting.remove(req)
                self._count_prompt(req)
            self.prefilling += admitted
        return prefill_rows(self.prefilling, self._settings.chunked_prefill_size, self.kv.page_size)

    def _decode_rows(self) -> list[Row]:
        """One token for each running request, retracting some where the pool is too full."""
        while victim := retraction_victim(self.running, self.kv):
            self.running.remove(victim)
            self._retract(victim)
        for req in self.running:
            self.kv.grow(req)
        return [Row(req, 1) for req in self.running]

    def _retract(self, req: Req) -> None:
        """Back to the queue's front; what it computed stays cached for as long as there is room."""
        req.hit_when_queued = req.cached_len
        self.kv.cache_finished_req(req)
        self.waiting.appendleft(req)
        self._retracted += 1

    def _run(self, rows: list[Row], rate: Rate) -> list[Event]:
        started = self._clock()
        batch = build_batch(rows, self.kv.rows)
        step = self._runner.launch(batch)
        step.sample(None)
        tokens = step.result().tokens
        pinned = self.kv.pinned_tokens
        events = self._apply(rows, tokens.tolist())

        seconds = self._clock() - started
        rate.add(len(batch.input_ids), seconds)
        self._release_rate.add(max(0, pinned - self.kv.pinned_tokens), seconds)
        self._steps += 1
        return events

    def _apply(self, rows: list[Row], tokens: list[int]) -> list[Event]:
        """Take a step's tokens in: `tokens` are those of the rows that sampled, in order."""
        sampled = [row.req for row in rows if row.samples]
        for row in rows:
            row.req.cached_len += row.extend_len
        if self.prefilling:
            # Rows follow the queue, and only the last one can be an unfinished chunk.
            self.prefilling = self.prefilling[len(sampled) :]
            self.running += sampled
            for row in rows:
                self.kv.cache_unfinished_req(row.req)

        outputs: list[Output] = []
        events: list[Event] = []
        for req, token in zip(sampled, tokens, strict=True):
            if token < 0:
                events.append(self._fail(req))
            else:
                outputs.append(self._take_token(req, token))
        self.running = [req for req in self.running if req.rid in self._by_rid]
        return [Outputs(outputs), *events] if outputs else events

    def _take_token(self, req: Req, token: int) -> Output:
        req.output.append(token)
        self._output_tokens += 1
        finish = None
        if token in req.sampling.stop_token_ids:
            finish = FinishReason.STOP
        elif req.remaining_tokens == 0:
            finish = FinishReason.LENGTH
        if finish:
            self.kv.cache_finished_req(req)
            del self._by_rid[req.rid]
            self._finished += 1
        return _output(req, [token], finish)

    def _fail(self, req: Req) -> Rejected:
        """End a request whose logits are not finite; what it computed alone is not cached."""
        self.kv.release(req)
        del self._by_rid[req.rid]
        return Rejected(rid=req.rid, status=500, message="the model's output was not finite")

    def _end_aborted(self) -> list[Event]:
        self._abort_asked = False
        aborted = [req for req in self._by_rid.values() if req.aborted]
        for req in aborted:
            if req.is_admitted:
                self.kv.cache_finished_req(req)
            del self._by_rid[req.rid]
        self._aborted += len(aborted)
        self.waiting = deque(req for req in self.waiting if not req.aborted)
        self.prefilling = [req for req in self.prefilling if not req.aborted]
        self.running = [req for req in self.running if not req.aborted]
        return [Outputs([_output(req, [], FinishReason.ABORT) for req in aborted])]

    def _count_prompt(self, req: Req) -> None:
        if req.cached_prompt_tokens is None:  # not when it comes back from a retraction
            req.cached_prompt_tokens = req.cached_len
            self._prompt_tokens += len(req.prompt)
            self._cached_prompt_tokens += req.cached_len


def _output(req: Req, token_ids: list[int], finish: FinishReason | None) -> Output:
    return Output(
        rid=req.rid,
        token_ids=token_ids,
        cached_tokens=req.cached_prompt_tokens or 0,
        finish=finish,
    )
