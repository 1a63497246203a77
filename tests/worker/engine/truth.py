"""The output that a request must have, computed from transformers' logits in plain float64.

Of the engine, only `uniforms` is used, the random number of a seed and a step.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import RepetitionPenaltyLogitsProcessor

from pando_worker.messages import SamplingParams, TokenLogprob
from pando_worker.runner.sampling.sampler import uniforms

# Float32 sums depend on their order. Scores this close may swap, and the cumulative borders between
# tokens may be off by this much.
TIE = 2e-4
BORDER = 5e-4


class Model(Protocol):
    def all_logits(self, tokens: list[int]) -> Tensor:
        """Logits after each of `tokens`, [len(tokens), vocab_size]."""
        ...


def check_output(
    model: Model, prompt: list[int], produced: list[int], sampling: SamplingParams
) -> None:
    """Raises AssertionError if a token is not the right one after the previous tokens."""
    logits = model.all_logits(prompt + produced)[len(prompt) - 1 : -1].double()
    for step, token in enumerate(produced):
        scores = edited(logits[step], sampling, prompt, produced[:step])
        context = f"token {step} of {produced} is {token}, for {sampling}"
        if sampling.temperature == 0:
            assert float(scores.max() - scores[token]) < TIE, f"{context}: not the best"
            continue
        weights = kept(scores, sampling)
        below, above = weights[:token].sum(), weights[: token + 1].sum()
        number = float(uniforms(np.array([sampling.seed]), np.array([step]))[0])
        assert below - BORDER <= number <= above + BORDER, (
            f"{context}: {number} is not from {below} to {above}"
        )


def edited(
    logits: Tensor, sampling: SamplingParams, prompt: Sequence[int], before: Sequence[int]
) -> Tensor:
    """The next token's logits, [vocab_size], with the request's edits: bias, then repetition
    penalty by transformers, then frequency and presence, which count only the output."""
    scores = logits.clone()
    for token, bias in sampling.logit_bias.items():
        scores[token] += bias
    if len(before) < sampling.min_new_tokens:
        scores[list(sampling.stop_token_ids)] = -torch.inf
    if sampling.repetition_penalty != 1:
        had = torch.tensor([[*prompt, *before]])
        scores = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)(had, scores[None])[0]
    for token in before:
        scores[token] -= sampling.frequency_penalty
    for token in set(before):
        scores[token] -= sampling.presence_penalty
    return scores


def kept(scores: Tensor, sampling: SamplingParams) -> Tensor:
    """Probabilities, [vocab_size], after temperature, top-k, top-p over the rest, and min-p. Each
    filter keeps the first few of the tokens, most likely first."""
    weights = (scores / sampling.temperature).softmax(-1)
    ordered, order = weights.sort(descending=True)
    count = sampling.top_k or len(order)
    held = ordered[:count].cumsum(-1)
    count = min(count, 1 + int((held < sampling.top_p * held[-1]).sum()))
    count = min(count, int((ordered >= sampling.min_p * ordered[0]).sum()))
    left = torch.zeros_like(weights)
    left[order[:count]] = ordered[:count]
    return left / left.sum()


def check_logprobs(
    model: Model, tokens: list[int], first: int, found: Sequence[TokenLogprob], top: int
) -> None:
    """Raises AssertionError unless `found` are the log-probabilities of `tokens` from position
    `first` on, in the model's own distribution, each with the `top` most likely tokens of its
    position."""
    assert len(found) == len(tokens) - first, f"{len(found)} instead of {len(tokens) - first}"
    truth = model.all_logits(tokens)[first - 1 : -1].double().log_softmax(-1)
    for row, token, one in zip(truth, tokens[first:], found, strict=True):
        assert abs(one.logprob - float(row[token])) < TIE
        assert len(one.top_ids) == len(one.top_logprobs) == top
        found_logprobs = torch.tensor(one.top_logprobs, dtype=torch.float64)
        torch.testing.assert_close(found_logprobs, row.topk(top).values, atol=TIE, rtol=0)
        torch.testing.assert_close(found_logprobs, row[one.top_ids], atol=TIE, rtol=0)
