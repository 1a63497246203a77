"""How the rows of a step sample: parameters, biases, penalties and the rules of speech."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pando_worker.batch import (
    NO_TIMESTAMPS,
    Int64,
    LogitBias,
    Penalties,
    SamplingBatch,
    SpeechRows,
)
from pando_worker.scheduler.batches.decodes import Decodes, is_penalised
from pando_worker.scheduler.req import Req


def sampling_of(decodes: Decodes | None, reqs: Sequence[Req], input_ids: Int64) -> SamplingBatch:
    """The sampling parameters of the decodes, which run the first `input_ids`, and of `reqs`."""
    of_decodes = decodes.sampling() if decodes else None
    batch = _gathered(reqs) if reqs or of_decodes is None else of_decodes
    if reqs and of_decodes is not None:
        names = ("temperature", "top_k", "top_p", "min_p", "seed", "step")
        batch = SamplingBatch(**_concatenated(of_decodes, batch, names))
    numbered = list(enumerate(reqs, start=len(decodes) if decodes else 0))
    batch.penalties = _joined(
        decodes.penalties(input_ids) if decodes else None, _penalties(numbered)
    )
    if decodes:
        numbered += [(decodes.position(req), req) for req in decodes.edited]
    if numbered:
        batch.bias = _bias(numbered)
        batch.speech = _speech(numbered)
        batch.top_logprobs = max(
            (req.logprobs.top for _, req in numbered if req.logprobs), default=-1
        )
    return batch


def _gathered(reqs: Sequence[Req]) -> SamplingBatch:
    params = [req.sampling for req in reqs]
    return SamplingBatch(
        temperature=np.array([p.temperature for p in params], dtype=np.float32),
        top_k=np.array([p.top_k for p in params], dtype=np.int64),
        top_p=np.array([p.top_p for p in params], dtype=np.float32),
        min_p=np.array([p.min_p for p in params], dtype=np.float32),
        seed=np.array([p.seed for p in params], dtype=np.int64),
        step=np.array([req.num_output for req in reqs], dtype=np.int64),
    )


def _bias(reqs: Sequence[tuple[int, Req]]) -> LogitBias | None:
    samples: list[int] = []
    tokens: list[int] = []
    values: list[float] = []
    for index, req in reqs:
        bias, least = req.sampling.logit_bias, req.sampling.min_new_tokens
        if not bias and not least:
            continue  # nearly every request
        if req.num_output < least:
            bias = bias | dict.fromkeys(req.sampling.stop_token_ids, -np.inf)
        samples += [index] * len(bias)
        tokens += bias.keys()
        values += bias.values()
    if not samples:
        return None
    return LogitBias(
        samples=np.array(samples, dtype=np.int64),
        tokens=np.array(tokens, dtype=np.int64),
        values=np.array(values, dtype=np.float32),
    )


def _speech(reqs: Sequence[tuple[int, Req]]) -> SpeechRows | None:
    ruled = [(index, req.rules) for index, req in reqs if req.rules]
    if not ruled:
        return None
    firsts = [rules.first_timestamp for _, rules in ruled]
    return SpeechRows(
        samples=np.array([index for index, _ in ruled], dtype=np.int64),
        first_timestamps=np.array(
            [NO_TIMESTAMPS if first is None else first for first in firsts], dtype=np.int64
        ),
    )


def _penalties(reqs: Sequence[tuple[int, Req]]) -> Penalties | None:
    """Of those that have any, each with its whole history. So what the runner keeps of a request
    is right from its last prompt token on, whatever happened to it before."""
    rows = [(index, req) for index, req in reqs if is_penalised(req.sampling)]
    if not rows:
        return None
    params = [req.sampling for _, req in rows]
    lengths = [req.num_tokens for _, req in rows]
    # These arrays have an item for every token of every request, so each is written only once.
    tokens = np.empty(sum(lengths), dtype=np.int64)
    is_output = np.ones(len(tokens), dtype=np.bool_)
    start = 0
    for (_, req), length in zip(rows, lengths, strict=True):
        known, end = start + req.num_known, start + length
        tokens[start:known] = req.vocabulary_ids(req.num_known)
        tokens[known:end] = -1 - req.row
        is_output[start : start + req.prompt_len] = False
        start = end
    return Penalties(
        samples=np.array([index for index, _ in rows], dtype=np.int64),
        presence=np.array([p.presence_penalty for p in params], dtype=np.float32),
        frequency=np.array([p.frequency_penalty for p in params], dtype=np.float32),
        repetition=np.array([p.repetition_penalty for p in params], dtype=np.float32),
        rows=np.array([req.row for _, req in rows], dtype=np.int64),
        begins=np.ones(len(rows), dtype=np.bool_),
        tokens=tokens,
        token_row=np.repeat(np.arange(len(rows)), lengths),
        is_output=is_output,
    )


def _joined(first: Penalties | None, second: Penalties | None) -> Penalties | None:
    if first is None or second is None:
        return first or second
    of_rows = ("samples", "presence", "frequency", "repetition", "rows", "begins")
    joined = _concatenated(first, second, (*of_rows, "tokens", "is_output"))
    token_row = np.concatenate((first.token_row, second.token_row + len(first.samples)))
    return Penalties(**joined, token_row=token_row)


def _concatenated(first: object, second: object, names: Iterable[str]) -> dict[str, Any]:
    """The arrays of these names, those of `second` after those of `first`."""
    return {name: np.concatenate((getattr(first, name), getattr(second, name))) for name in names}
