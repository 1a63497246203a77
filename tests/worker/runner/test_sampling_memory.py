"""Memory that sampling takes beside the logits, and that drawing in parts changes nothing."""

import pytest
import torch

from pando_worker.runner.sampling import logprobs, sampler
from pando_worker.runner.sampling.logprobs import token_logprobs
from pando_worker.runner.sampling.sampler import _rows_of, sample
from tests.gpu.test_sampling import params
from tests.worker.runner.live_memory import peak_bytes

ROWS, VOCAB, PART = 48, 6_400, 8
COPY = PART * VOCAB * 4  # bytes
LOGITS = torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(3)) * 3


def test_drawing_for_many_rows_takes_little_more_memory_than_for_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = params(ROWS)
    at_once = sample(LOGITS.clone(), limits)
    few = peak_bytes(lambda: sample(LOGITS[:PART], _rows_of(limits, slice(0, PART))))
    monkeypatch.setattr(sampler, "SAMPLE_BYTES", COPY)
    drawn: list[torch.Tensor] = []
    many = peak_bytes(lambda: drawn.append(sample(LOGITS, limits)))
    assert torch.equal(drawn[0], at_once)
    assert COPY < few <= many < 1.5 * few < 7 * COPY


def test_log_probabilities_of_many_tokens_take_little_more_memory_than_of_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = torch.arange(ROWS)
    at_once = token_logprobs(LOGITS, tokens, 5)
    few = peak_bytes(lambda: token_logprobs(LOGITS[:PART], tokens[:PART], 5))
    monkeypatch.setattr(logprobs, "SCORE_BYTES", COPY)
    found: list[logprobs.DeviceLogprobs] = []
    many = peak_bytes(lambda: found.append(token_logprobs(LOGITS, tokens, 5)))
    for name in ("chosen", "top_ids", "top"):
        assert torch.equal(getattr(found[0], name), getattr(at_once, name))
    assert many < few + COPY
