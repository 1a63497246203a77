"""One generation from token ids to text: what every endpoint that generates has in common.

A `Job` goes to the scheduler; its tokens come back as `Delta`s of text that is final, cut at stop
strings. Closing the iterator of deltas aborts the request.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from pando_worker.messages import FinishReason, Output, SamplingParams
from pando_worker.server.detokenizer import Detokenizer, Vocabulary
from pando_worker.server.engine_client import EngineClient
from pando_worker.server.metrics import Metrics
from pando_worker.server.stop_strings import StopStrings


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    name: str  # what /abort_request knows it by
    input_ids: list[int]
    sampling: SamplingParams
    stop: list[str]
    include_stop: bool  # keep the stop string or token that ends the text
    received: float  # time.monotonic() when the request came in


@dataclass(frozen=True, slots=True)
class Finish:
    reason: FinishReason
    matched: int | str | None = None  # the stop token or stop string


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    text: str  # may be empty: within a character, or held back as a possible stop string
    token_ids: list[int]
    cached_tokens: int
    finish: Finish | None


async def generate(
    engine: EngineClient, vocabulary: Vocabulary, job: Job, metrics: Metrics
) -> AsyncGenerator[Delta, None]:
    """Deltas, the last one with `finish`. Raises ApiError when the scheduler gives the job up."""
    reader = _OutputReader(vocabulary, job)
    last: float | None = None
    async with aclosing(engine.generate(job.name, job.input_ids, job.sampling)) as outputs:
        async for output in outputs:
            delta = reader.read(output)
            last = _observe(metrics, job, delta, last)
            yield delta
            if delta.finish:
                return


def _observe(metrics: Metrics, job: Job, delta: Delta, last: float | None) -> float | None:
    """Records the delta's latencies; `last` is when the job's token before it came."""
    now = time.monotonic()
    if delta.finish:
        metrics.request_duration.observe(now - job.received)
    if not delta.token_ids:
        return last
    if last is None:
        metrics.time_to_first_token.observe(now - job.received)
    else:
        # Tokens that a slow reader gets together share their time.
        each = (now - last) / len(delta.token_ids)
        for _ in delta.token_ids:
            metrics.inter_token_latency.observe(each)
    return now


class _OutputReader:
    """Turns tokens into final text. Token by token, so the result is the same however many come
    together."""

    def __init__(self, vocabulary: Vocabulary, job: Job) -> None:
        self._detokenizer = Detokenizer(vocabulary)
        self._stops = StopStrings(job.stop, include=job.include_stop)
        self._include_stop = job.include_stop

    def read(self, output: Output) -> Delta:
        tokens = output.token_ids
        stopped = output.finish is FinishReason.STOP  # by the last token, whose text is left out
        text = ""
        for i, token_id in enumerate(tokens):
            if stopped and not self._include_stop and i == len(tokens) - 1:
                break
            text += self._stops.push(self._detokenizer.push(token_id))
            if self._stops.matched is not None:
                return self._delta(output, text, tokens[: i + 1])
        if output.finish is None:
            return self._delta(output, text, tokens)
        text += self._stops.push(self._detokenizer.flush())
        if self._stops.matched is None:
            text += self._stops.flush()
        return self._delta(output, text, tokens)

    def _delta(self, output: Output, text: str, token_ids: list[int]) -> Delta:
        finish = None
        if self._stops.matched is not None:
            finish = Finish(FinishReason.STOP, self._stops.matched)
        elif output.finish is not None:
            stopped = output.finish is FinishReason.STOP
            finish = Finish(output.finish, token_ids[-1] if stopped else None)
        return Delta(
            text=text,
            token_ids=token_ids,
            cached_tokens=output.cached_tokens,
            finish=finish,
        )
