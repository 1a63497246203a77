"""Applies a step's results to its requests: tokens and embeddings to send, and finishes."""

import numpy as np

from pando_worker.batch import Float32
from pando_worker.messages import Embedded, FinishReason, Output, TokenLogprob
from pando_worker.scheduler.batches.batching import Row
from pando_worker.scheduler.batches.constrained import begin_jump
from pando_worker.scheduler.batches.results import RowResult
from pando_worker.scheduler.req import Ending, Req


def take_result(row: Row, result: RowResult) -> Output | Embedded | None:
    """Apply a row's result to its request, which may end it. Returns the message to send; None for
    an unfinished chunk and for a request that failed."""
    row.req.prompt_logprobs += result.scores
    if result.token is not None:
        return take_token(row.req, result.token, result.logprob)
    if result.pooled is not None:
        return _take_pooled(row, result.pooled)
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


def _take_pooled(row: Row, part: Float32) -> Embedded | None:
    """Add a part of an embedding; returns it with the prompt's last row."""
    req = row.req
    req.pooled = part if req.pooled is None else req.pooled + part
    if not row.is_last:
        return None
    # The vector is normalised, so a mean need not be divided by its count.
    length = float(np.linalg.norm(req.pooled))
    if not np.isfinite(length) or length == 0:
        req.ending = Ending.FAILED
        return None
    req.ending = Ending.FINISHED
    return Embedded(
        rid=req.rid,
        vector=(req.pooled / length).astype("<f4").tobytes(),
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
    queue_seconds, req.queue_seconds = req.queue_seconds, None
    return Output(
        rid=req.rid,
        token_ids=token_ids,
        cached_tokens=cached_tokens,
        finish=finish,
        queue_s=queue_seconds,
        logprobs=[] if logprob is None else [logprob],
        prompt_logprobs=prompt_logprobs,
    )
