"""Log-probabilities compared with the log_softmax of transformers' logits."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.batch import (
    ForwardBatch,
    LogitBias,
    Logprobs,
    Penalties,
    PromptScores,
    StepResult,
)
from pando_worker.runner.sampling import logprobs as logprobs_module
from pando_worker.runner.sampling.logprobs import prompt_logprobs
from tests.worker.model.checkpoints import SHAPE, Reference, prompt
from tests.worker.model.paged import Paged, Row

VOCAB = SHAPE["vocab_size"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def paged(reference: Reference) -> Paged:
    return Paged(reference.path)


def true_logprobs(reference: Reference, tokens: list[int]) -> Tensor:
    """Log-probabilities after each of `tokens`, [len(tokens), VOCAB]."""
    with torch.inference_mode():
        logits: Tensor = reference.model(torch.tensor([tokens])).logits[0]
    return logits.log_softmax(dim=-1)


def run(paged: Paged, batch: ForwardBatch, mask: np.ndarray | None = None) -> StepResult:
    step = paged.runner.launch(batch)
    step.sample(mask)
    return step.result()


def assert_are(found: Logprobs | None, truth: Tensor, tokens: list[int], top: int) -> None:
    """`truth` are the log-probabilities of the whole vocabulary, [n, VOCAB]."""
    assert found is not None
    chosen = truth.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    np.testing.assert_allclose(found.chosen, chosen, atol=1e-4, rtol=1e-4)
    assert found.chosen.dtype == found.top.dtype == np.float32
    assert found.top.shape == found.top_ids.shape == (len(tokens), top)
    np.testing.assert_allclose(found.top, truth.topk(top).values, atol=1e-4, rtol=1e-4)
    at_ids = truth.gather(1, torch.from_numpy(found.top_ids).long())
    np.testing.assert_allclose(found.top, at_ids, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("top", [0, 1, 5])
def test_sampled_tokens_have_the_log_probabilities_of_transformers(
    reference: Reference, paged: Paged, top: int
) -> None:
    prompts = [prompt(length, seed=length) for length in (5, 17, 2)]
    rows = [Row(list(tokens)) for tokens in prompts]
    batch = paged.pages.batch(rows, [len(tokens) for tokens in prompts])
    batch.sampling.top_logprobs = top
    result = run(paged, batch)
    truth = torch.stack([true_logprobs(reference, tokens)[-1] for tokens in prompts])
    assert_are(result.logprobs, truth, result.tokens.tolist(), top)
    assert result.scores is None


def test_they_are_the_models_own_whatever_the_request_does_to_its_logits(
    reference: Reference, paged: Paged
) -> None:
    tokens = prompt(12)
    truth = true_logprobs(reference, tokens)[-1:]
    best, second, third = truth[0].topk(3).indices.tolist()
    batch = paged.pages.batch([Row(list(tokens))], [12])
    sampling = batch.sampling
    sampling.temperature[:] = 1e-3
    sampling.top_logprobs = 2
    sampling.bias = LogitBias(
        samples=np.array([0]), tokens=np.array([best]), values=np.array([-np.inf], dtype=np.float32)
    )
    sampling.penalties = Penalties(
        samples=np.array([0]),
        presence=np.array([50], dtype=np.float32),
        frequency=np.zeros(1, dtype=np.float32),
        repetition=np.ones(1, dtype=np.float32),
        rows=np.array([0]),
        begins=np.array([True]),
        tokens=np.array([second]),
        token_row=np.array([0]),
        is_output=np.array([True]),
    )
    result = run(paged, batch, np.full((1, -(-VOCAB // 32)), -1, dtype=np.int32))
    assert result.tokens.tolist() == [third]
    assert_are(result.logprobs, truth, [third], 2)


@pytest.mark.parametrize("chunk", [3, 8, 100])
@pytest.mark.parametrize("top", [0, 4])
def test_prompts_are_scored_as_by_transformers_in_any_chunks(
    reference: Reference, paged: Paged, chunk: int, top: int
) -> None:
    """Two prompts, from position 1 and from position 4 on."""
    prompts, firsts = [prompt(19, seed=1), prompt(9, seed=2)], [1, 4]
    rows = [Row(list(tokens)) for tokens in prompts]
    found: list[list[float]] = [[], []]
    while pending := [row for row in rows if row.pending]:
        counts = [min(chunk, row.pending) for row in pending]
        starts = np.cumsum(counts) - counts
        wanted: list[tuple[int, int, int]] = []  # row, after, target
        for row, count, start in zip(pending, counts, starts, strict=True):
            index = rows.index(row)
            for position in range(row.cached + 1, row.cached + count + 1):
                if firsts[index] <= position < len(row.tokens):
                    after = int(start) + position - 1 - row.cached
                    wanted.append((index, after, row.tokens[position]))
        batch = paged.pages.batch(pending, counts)
        if wanted:
            _, after_all, targets = (np.array(column) for column in zip(*wanted, strict=True))
            batch.scores = PromptScores(after=after_all, targets=targets, top_logprobs=top)
        scores = run(paged, batch).scores
        assert (scores is not None) == bool(wanted)
        if scores is not None:
            assert scores.top.shape == (len(wanted), top)
            for (index, _, _), score in zip(wanted, scores.chosen.tolist(), strict=True):
                found[index].append(score)
    for tokens, first, scored in zip(prompts, firsts, found, strict=True):
        truth = true_logprobs(reference, tokens)[first - 1 : -1]
        expected = truth.gather(1, torch.tensor(tokens[first:])[:, None])[:, 0]
        np.testing.assert_allclose(scored, expected, atol=1e-4, rtol=1e-4)


def test_a_long_prompt_never_has_all_its_logits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs_module, "SCORE_BYTES", 4 * VOCAB * 10)
    weight, hidden = torch.randn(VOCAB, 8), torch.randn(70, 8)
    sizes: list[int] = []

    def head(tokens: NDArray[np.int64]) -> Tensor:
        sizes.append(len(tokens))
        return hidden[torch.from_numpy(tokens)] @ weight.T

    after, targets = np.arange(3, 60), np.arange(57) % VOCAB
    wanted = PromptScores(after=after, targets=targets, top_logprobs=3)
    found = prompt_logprobs(head, wanted, VOCAB, torch.device("cpu"))
    assert max(sizes) == 10
    assert sum(sizes) == 57
    assert found is not None
    truth = (hidden[3:60] @ weight.T).log_softmax(-1)
    torch.testing.assert_close(found.chosen, truth.gather(1, torch.arange(57)[:, None])[:, 0])
    torch.testing.assert_close(found.top, truth.topk(3).values)


def test_what_nobody_asked_for_is_absent(paged: Paged) -> None:
    result = run(paged, paged.pages.batch([Row(prompt(6))], [6]))
    assert result.logprobs is None
    assert result.scores is None


def test_more_top_tokens_than_the_vocabulary_has_are_all_of_it(
    paged: Paged,
) -> None:
    batch = paged.pages.batch([Row(prompt(6))], [6])
    batch.sampling.top_logprobs = VOCAB + 10
    found = run(paged, batch).logprobs
    assert found is not None
    assert found.top_ids.shape == (1, VOCAB)
    assert np.exp(found.top).sum() == pytest.approx(1, abs=1e-4)
