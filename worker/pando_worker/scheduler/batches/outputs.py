"""Applies a step's results to its requests: tokens and embeddings to send, and finishes."""

import numpy as np

from pando_worker.batch import Float32
from pando_worker.messages import (
    Aligned,
    Embedded,
    FinishReason,
    Output,
    Pooling,
    TokenLogprob,
    Verified,
)
from pando_worker.scheduler.batches.alignment import smoothed
from pando_worker.scheduler.batches.batching import Row
from pando_worker.scheduler.batches.constrained import begin_jump
from pando_worker.scheduler.batches.pooling import joined, normalized
from pando_worker.scheduler.batches.results import RowResult
from pando_worker.scheduler.req import Ending, Req


def take_result(row: Row, result: RowResult) -> Output | Embedded | Aligned | Verified | None:
    """Apply a row's result to its request, which may end it. Returns the message to send; None for
    an unfinished chunk and for a request that failed."""
    row.req.prompt_logprobs += result.scores
    if result.probed:
        row.req.probed = result.probed
    if result.token is not None:
        return take_token(row.req, result.token, result.logprob)
    if row.req.pooling is not None:
        return _take_pooled(row, row.req.pooling, result.pooled)
    if result.aligned is not None:
        return _take_aligned(row, result.aligned)
    if result.choices:
        return _take_choices(row, result.choices)
    return None


def last_output(req: Req, finish: FinishReason) -> Output:
    """The final output of a request that gets no further token."""
    return _output(req, [], finish, None)


def take_token(req: Req, sampled: int, logprob: TokenLogprob | None) -> Output | None:
    """Append a sampled token, and those that the grammar forces after it, to a request, which may
    end it. Returns the message to send; None if the request failed."""
    if sampled < 0:
        req.ending = Ending.FAILED
        return None
    finish = _append(req, sampled)
    if req.grammar is None:
        tokens = [sampled]
    else:
        tokens, finish = _jump(req, sampled, finish)
    if req.ending is Ending.FAILED:
        return None
    if finish:
        req.ending = Ending.FINISHED
    return _output(req, tokens, finish, logprob)


def _jump(
    req: Req, sampled: int, finish: FinishReason | None
) -> tuple[list[int], FinishReason | None]:
    """Append the tokens that the grammar forces; returns all tokens to send, and why the request
    ends with them."""
    if req.ending is not None or finish is not None or not (jump := begin_jump(req)):
        return [sampled], finish
    tokens: list[int] = []
    for token in jump:
        tokens.append(token)
        if finish := _append(req, token):
            break
    return tokens, finish


def _append(req: Req, token: int) -> FinishReason | None:
    """Append a token; returns the finish reason if the request ends with it."""
    known = req.num_known
    req.ids[known] = token
    req.num_known = known = known + 1
    grammar = req.grammar
    if grammar is not None and not grammar.accept(token):
        req.ending = Ending.FAILED
        return None
    if token in req.sampling.stop_token_ids or (grammar is not None and grammar.is_finished):
        return FinishReason.STOP
    return FinishReason.LENGTH if known == len(req.ids) else None


def _take_pooled(row: Row, pooling: Pooling, part: Float32 | None) -> Embedded | None:
    """Add a part of a pooled vector; returns it with the prompt's last row."""
    req = row.req
    req.pooled = joined(pooling, req.pooled, part)
    if not row.is_last:
        return None
    assert req.pooled is not None, "a prompt has tokens"
    vector = normalized(req.pooled) if req.is_normalized else req.pooled
    if not np.isfinite(vector).all():
        req.ending = Ending.FAILED
        return None
    req.ending = Ending.FINISHED
    return Embedded(
        rid=req.rid,
        vector=vector.astype("<f4").tobytes(),
        cached_tokens=req.cached_prompt_tokens or 0,
        queue_s=req.queue_seconds or 0.0,
    )


def _take_aligned(row: Row, part: Float32) -> Aligned | None:
    """Add a part of an alignment; returns it with the last row."""
    req = row.req
    req.aligned.append(part)
    if not row.is_last:
        return None
    weights = smoothed(req.aligned)
    if not np.isfinite(weights).all():
        req.ending = Ending.FAILED
        return None
    req.ending = Ending.FINISHED
    return Aligned(
        rid=req.rid,
        weights=weights.astype("<f4").tobytes(),
        cached_tokens=req.cached_prompt_tokens or 0,
        queue_s=req.queue_seconds or 0.0,
    )


def _take_choices(row: Row, part: list[tuple[int, float]]) -> Verified | None:
    """Add a part of a verification; returns it with the last row."""
    req = row.req
    req.choices += part
    if not row.is_last:
        return None
    if any(token < 0 for token, _ in req.choices):
        req.ending = Ending.FAILED
        return None
    req.ending = Ending.FINISHED
    return Verified(
        rid=req.rid,
        choices=[token for token, _ in req.choices],
        logprobs=[logprob for _, logprob in req.choices],
        probed=req.probed,
        is_source_cached=bool(req.is_source_cached),
        cached_tokens=req.cached_prompt_tokens or 0,
        queue_s=req.queue_seconds or 0.0,
    )


def _output(
    req: Req, token_ids: list[int], finish: FinishReason | None, logprob: TokenLogprob | None
) -> Output:
    cached_tokens = req.cached_prompt_tokens or 0
    is_first = req.queue_seconds is not None or req.prompt_logprobs
    if finish is None and logprob is None and not is_first:  # nearly every output
        return Output(rid=req.rid, token_ids=token_ids, cached_tokens=cached_tokens)
    prompt_logprobs, req.prompt_logprobs = req.prompt_logprobs, []
    probed, req.probed = req.probed, []
    queue_seconds, req.queue_seconds = req.queue_seconds, None
    return Output(
        rid=req.rid,
        token_ids=token_ids,
        cached_tokens=cached_tokens,
        finish=finish,
        queue_s=queue_seconds,
        logprobs=[] if logprob is None else [logprob],
        prompt_logprobs=prompt_logprobs,
        probed=probed,
        is_source_cached=queue_seconds is not None and bool(req.is_source_cached),
    )
