"""Runs a client's generation and turns its token ids into text, for every generating endpoint.

A `Job` is sent to the scheduler as one request per choice. Their tokens come back as `Delta`s of
final text, cut at stop strings. Closing the iterator of deltas aborts the running requests.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from msgspec import structs

from pando_fleet.traces import RequestSpan
from pando_worker.messages import FinishReason, Generate, Output
from pando_worker.server.engine_client import EngineClient
from pando_worker.server.metrics import Metrics
from pando_worker.server.text.reader import Delta, Finish, OutputReader, TextOptions
from pando_worker.server.tracing import ChoiceTrace, choice_of
from pando_worker.tokenizer.detokenizer import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    prompts: list[list[int]]
    samples: int  # choices per prompt
    orders: list[Generate]  # choice i of prompt p is at p * samples + i
    text: TextOptions
    resumed: list[int] = field(default_factory=list)  # the only choice's tokens so far
    prompt_only: bool = False  # drop the one token that the scheduler must generate
    received: float  # time.monotonic() when the request came in
    trace: RequestSpan | None = None


async def generate(
    engine: EngineClient, vocabulary: Vocabulary, job: Job, metrics: Metrics
) -> AsyncGenerator[Delta, None]:
    """Deltas of all choices as they arrive; the last one of each has `finish`.

    The first delta includes the resumed tokens, so text, stop strings and parsers behave as if this
    worker had generated everything.

    Raises ApiError if the scheduler rejects or fails any of them.
    """
    readers = [OutputReader(i, vocabulary, job.text) for i in range(len(job.orders))]
    latencies = [_Latency(metrics, job, choice_of(job.trace)) for _ in job.orders]
    resumed = job.resumed
    found = [0] * len(job.orders)  # cached positions of their sources
    with engine.call(job.orders) as call:
        async with aclosing(call.outputs()) as outputs:
            async for index, output in outputs:
                if resumed:
                    output = structs.replace(output, token_ids=[*resumed, *output.token_ids])
                    resumed = []
                if (source := job.orders[index].source) is not None:
                    if output.queue_s is not None:  # the first one
                        found[index] = source.length if output.is_source_cached else 0
                    output = structs.replace(output, cached_tokens=found[index])
                delta = readers[index].read(output)
                latencies[index].observe(output, delta)
                if delta.finish:
                    call.stop(index)  # if a stop string ended it, it still runs
                yield _without_output(delta) if job.prompt_only else delta


def _without_output(delta: Delta) -> Delta:
    finish = delta.finish and Finish(FinishReason.LENGTH)
    return structs.replace(delta, text="", token_ids=[], logprobs=[], scored=[], finish=finish)


@dataclass(slots=True)
class _Latency:
    """Records the latencies of one choice."""

    metrics: Metrics
    job: Job
    trace: ChoiceTrace | None
    last: float | None = None  # arrival of the previous token
    tokens: int = 0
    queue_s: float | None = None

    def observe(self, output: Output, delta: Delta) -> None:
        now = time.monotonic()
        metrics, received = self.metrics, self.job.received
        self.tokens += len(delta.token_ids)
        if output.queue_s is not None:
            metrics.queue_time.observe(output.queue_s)
            self.queue_s = output.queue_s
        if delta.finish:
            metrics.request_duration.observe(now - received)
            metrics.request_output_tokens.observe(self.tokens)
            if self.trace is not None:
                self._trace_end(self.trace, delta, delta.finish)
        if not delta.token_ids:
            return
        if self.last is None:
            metrics.time_to_first_token.observe(now - received)
            if self.trace is not None and not delta.finish:
                self._trace_first(self.trace, delta)
        else:
            # Tokens that a slow reader gets together share the elapsed time.
            metrics.observe_gaps(now - self.last, len(delta.token_ids))
        self.last = now

    def _trace_first(self, trace: ChoiceTrace, delta: Delta) -> None:
        prompt_tokens = len(self.job.prompts[delta.index // self.job.samples])
        trace.first_token(self.queue_s, prompt_tokens, delta.cached_tokens)

    def _trace_end(self, trace: ChoiceTrace, delta: Delta, finish: Finish) -> None:
        if self.last is None and delta.token_ids:  # all its tokens arrived at once
            self._trace_first(trace, delta)
        trace.finish(self.tokens, finish.reason.value)
