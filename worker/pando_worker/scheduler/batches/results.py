"""Splits a step's result arrays into one `RowResult` per row of the batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pando_worker.batch import Choices, Float32, Logprobs, StepResult
from pando_worker.messages import TokenLogprob
from pando_worker.scheduler.batches.batching import Row
from pando_worker.scheduler.req import Req

Logprob = TokenLogprob | None


@dataclass(frozen=True, slots=True)
class RowResult:
    token: int | None  # None for an unfinished chunk; -1 if the logits were not finite
    logprob: TokenLogprob | None  # of the token, if requested
    scores: list[TokenLogprob]  # of the row's prompt tokens, if requested
    pooled: Float32 | None  # its part of a pooled vector, [hidden_size], if it yields one
    aligned: Float32 | None  # its part of an alignment, [heads, tokens, positions]
    choices: list[tuple[int, float]]  # of `Row.chosen`, with log-probabilities
    probed: list[float]  # log-probabilities of the probed tokens, if it runs the one before them


def read_decodes(reqs: Sequence[Req], step: StepResult) -> Iterable[tuple[int, Logprob]]:
    """The token of each of a batch's decodes, which come first, and its log-probability if it was
    requested."""
    tokens: list[int] = step.tokens[: len(reqs)].tolist()
    logprobs: list[Logprob] = [None] * len(reqs)
    if step.logprobs is not None:
        for index, req in enumerate(reqs):
            if req.logprobs:
                logprobs[index] = _read(step.logprobs, index, req.logprobs.top)
    return zip(tokens, logprobs, strict=True)


def read_results(rows: Sequence[Row], step: StepResult, first: int) -> list[RowResult]:
    """
    Args:
        first: how many decodes were before these rows; each yields one token.
    """
    tokens = step.tokens.tolist()
    results: list[RowResult] = []
    sample, score, pool, probe, choice = first, 0, 0, 0, 0
    alignments = iter(step.aligned)
    for row in rows:
        token, logprob, scores, pooled, probed = None, None, [], None, list[float]()
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
        if row.pooled and step.pooled is not None:
            pooled = step.pooled[pool]
            pool += 1
        if row.probes and row.req.probe and step.probed is not None:
            end = probe + len(row.req.probe.token_ids)
            probed = step.probed[probe:end].tolist()
            probe = end
        aligned = next(alignments) if row.aligned else None
        choices = list[tuple[int, float]]()
        if row.chosen and step.choices is not None:
            end = choice + len(row.chosen)
            choices = _read_choices(step.choices, choice, end)
            choice = end
        results.append(RowResult(token, logprob, scores, pooled, aligned, choices, probed))
    return results


def _read_choices(choices: Choices, first: int, end: int) -> list[tuple[int, float]]:
    tokens, logprobs = choices.tokens[first:end].tolist(), choices.logprobs[first:end].tolist()
    return list(zip(tokens, logprobs, strict=True))


def _read(logprobs: Logprobs, index: int, top: int) -> TokenLogprob:
    return TokenLogprob(
        logprob=float(logprobs.chosen[index]),
        top_ids=logprobs.top_ids[index, :top].tolist(),
        top_logprobs=logprobs.top[index, :top].tolist(),
    )
