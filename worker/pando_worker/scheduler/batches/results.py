"""Splits a step's result arrays into one `Result` per row of the batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from pando_worker.batch import Float32, Logprobs, StepResult
from pando_worker.messages import TokenLogprob
from pando_worker.scheduler.batches.batching import Row


@dataclass(frozen=True, slots=True)
class Result:
    token: int | None  # None for an unfinished chunk; -1 if the logits were not finite
    logprob: TokenLogprob | None  # of the token, if requested
    scores: list[TokenLogprob]  # of the row's prompt tokens, if requested
    pooled: Float32 | None  # its part of an embedding, [hidden_size]


def read_results(rows: Sequence[Row], step: StepResult) -> list[Result]:
    tokens = step.tokens.tolist()
    results: list[Result] = []
    sample = score = pool = 0
    for row in rows:
        token, logprob, scores, pooled = None, None, [], None
        wanted = row.req.logprobs
        if row.samples:
            token = tokens[sample]
            if wanted and step.logprobs:
                logprob = _read(step.logprobs, sample, wanted.top)
            sample += 1
        if row.scored and wanted and step.scores:
            end = score + len(row.scored)
            scores = [_read(step.scores, index, wanted.top) for index in range(score, end)]
            score = end
        if row.pools and step.pooled is not None:
            pooled = step.pooled[pool]
            pool += 1
        results.append(Result(token, logprob, scores, pooled))
    return results


def _read(logprobs: Logprobs, index: int, top: int) -> TokenLogprob:
    return TokenLogprob(
        logprob=float(logprobs.chosen[index]),
        top_ids=logprobs.top_ids[index, :top].tolist(),
        top_logprobs=logprobs.top[index, :top].tolist(),
    )
