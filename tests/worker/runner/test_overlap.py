"""Steps launched before the previous step's tokens are known, on the runner itself and on one in a
thread, compared with steps that are awaited one by one."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from pando_worker.batch import (
    ForwardBatch,
    Int32,
    ModelRunner,
    Penalties,
    SamplingBatch,
    Step,
    StepResult,
)
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.runner.threaded import ThreadedRunner
from tests.waiting import PATIENCE_S
from tests.worker.model.checkpoints import SHAPE, Reference, prompt
from tests.worker.model.paged import Paged, Row

COUNT = 12
WORDS = -(-SHAPE["vocab_size"] // 32)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("llama"))


@contextmanager
def threaded(runner: ModelRunner) -> Iterator[ThreadedRunner]:
    outer = ThreadedRunner(runner)
    try:
        yield outer
    finally:
        outer.close()


def sampling(rows: int, step: int) -> SamplingBatch:
    """Greedy rows and others by turns, with their own seeds."""
    return SamplingBatch(
        temperature=np.arange(rows, dtype=np.float32) % 3,
        top_k=np.full(rows, 30),
        top_p=np.full(rows, 0.95, dtype=np.float32),
        min_p=np.zeros(rows, dtype=np.float32),
        seed=np.arange(rows),
        step=np.full(rows, step),
        top_logprobs=2,
    )


def strong_penalties(rows: Sequence[Row], prompts: Sequence[list[int]]) -> Penalties:
    """Penalties so strong that a missing or wrong token in the history changes the output."""
    lengths = [len(row.tokens) for row in rows]
    return Penalties(
        samples=np.arange(len(rows)),
        presence=np.full(len(rows), 1.5, dtype=np.float32),
        frequency=np.full(len(rows), 2.0, dtype=np.float32),
        repetition=np.full(len(rows), 1.5, dtype=np.float32),
        rows=np.arange(len(rows)),
        begins=np.ones(len(rows), dtype=np.bool_),
        tokens=np.concatenate([row.tokens for row in rows]).astype(np.int64),
        token_row=np.repeat(np.arange(len(rows)), lengths),
        is_output=np.concatenate(
            [np.arange(len(r.tokens)) >= len(p) for r, p in zip(rows, prompts, strict=True)]
        ),
    )


def mask_without(token: int, rows: int) -> Int32:
    mask = np.full((rows, WORDS), -1, dtype=np.int32)
    mask[:, token // 32] &= ~np.int32(1 << token % 32)
    return mask


def run(
    paged: Paged, runner: ModelRunner, prompts: Sequence[list[int]], *, ahead: bool
) -> tuple[list[list[int]], list[np.ndarray]]:
    """COUNT tokens after each prompt, and the log-probabilities of each step."""
    rows = [Row(list(tokens)) for tokens in prompts]
    chosen: list[np.ndarray] = []
    in_flight: Step | None = None

    def take_in(step: Step) -> None:
        result = step.result()
        for row, prompt_tokens, token in zip(rows, prompts, result.tokens.tolist(), strict=True):
            row.tokens[len(prompt_tokens) + len(chosen)] = token
        assert result.logprobs is not None
        chosen.append(result.logprobs.chosen)

    mask = np.empty((len(rows), WORDS), dtype=np.int32)
    for number in range(COUNT):
        batch = paged.pages.batch(rows, [row.pending for row in rows])
        batch.sampling = sampling(len(rows), number)
        batch.sampling.penalties = strong_penalties(rows, prompts)
        step = runner.launch(batch)
        if in_flight:
            take_in(in_flight)
        mask[:] = mask_without(number, len(rows))
        step.sample(mask)
        mask[:] = 0  # for the next step; the previous one must have copied its own by now
        for index, row in enumerate(rows):
            row.tokens.append(-1 - index)
        in_flight = step
        if not ahead:
            take_in(step)
            in_flight = None
    if in_flight:
        take_in(in_flight)
    return [row.tokens[len(p) :] for row, p in zip(rows, prompts, strict=True)], chosen


@pytest.mark.parametrize("in_thread", [False, True])
def test_tokens_are_the_same_whether_the_next_step_waits_for_them_or_not(
    reference: Reference, in_thread: bool
) -> None:
    prompts = [prompt(length, seed=length) for length in (5, 1, 30, 12)]
    paged = Paged(reference.path)
    expected, expected_logprobs = run(paged, paged.runner, prompts, ahead=False)
    assert min(min(tokens) for tokens in expected) >= 0
    for number in range(COUNT):
        assert all(tokens[number] != number for tokens in expected), "the mask was not heeded"
    paged = Paged(reference.path)
    if in_thread:
        with threaded(paged.runner) as runner:
            tokens, logprobs = run(paged, runner, prompts, ahead=True)
    else:
        tokens, logprobs = run(paged, paged.runner, prompts, ahead=True)
    assert tokens == expected
    np.testing.assert_allclose(logprobs, expected_logprobs, atol=1e-5)


def test_a_row_that_broke_runs_on_beside_the_others_until_it_is_seen(tmp_path: Path) -> None:
    """Its token is -1, which is not a valid id: the next step, already launched, must not fail."""
    reference = Reference(tmp_path)
    with torch.no_grad():
        reference.model.get_input_embeddings().weight[7] = torch.inf
    reference.model.save_pretrained(tmp_path)
    paged = Paged(tmp_path)
    good = next(
        tokens
        for seed in range(50)
        if 7 not in (tokens := prompt(9, seed=seed)) and 7 not in reference.greedy(tokens, 2)
    )
    rows = [Row(list(good)), Row([4, 7])]
    first = paged.runner.launch(paged.pages.batch(rows, [row.pending for row in rows]))
    first.sample(None)
    for index, row in enumerate(rows):
        row.tokens.append(-1 - index)
    second = paged.runner.launch(paged.pages.batch(rows, [1, 1]))
    second.sample(None)
    found = [first.result().tokens.tolist(), second.result().tokens.tolist()]
    assert [tokens[0] for tokens in found] == reference.greedy(good, 2)
    assert [tokens[1] for tokens in found] == [-1, -1]


def test_unknown_tokens_are_the_last_ones_of_their_rows() -> None:
    futures = FutureTokens(6, torch.device("cpu"))
    futures.put(np.array([4, 1]), torch.tensor([40, 10]))
    futures.put(np.array([1, 3]), torch.tensor([11, -1]))
    ids = np.array([5, -1 - 4, -1 - 1, 0, -1 - 3])
    assert futures.resolve(ids).tolist() == [5, 40, 11, 0, 0]
    assert ids.tolist() == [5, -5, -2, 0, -4], "the batch's own array stays as it is"


class Gated:
    """A runner that waits for the test before it runs, and records the order of its calls."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.calls: list[str] = []

    def launch(self, batch: ForwardBatch) -> "_GatedStep":
        assert self.gate.wait(PATIENCE_S)
        number = int(batch.input_ids[0])
        self.calls.append(f"launch {number}")
        if number == 13:
            raise ValueError("unlucky")
        return _GatedStep(self, number)


class _GatedStep:
    def __init__(self, runner: Gated, number: int) -> None:
        self._runner, self._number = runner, number

    def sample(self, mask: Int32 | None) -> None:
        self._runner.calls.append(f"sample {self._number}")

    def result(self) -> StepResult:
        return StepResult(tokens=np.array([self._number]))


@pytest.fixture
def batches(reference: Reference) -> list[ForwardBatch]:
    pages = Paged(reference.path).pages
    return [pages.batch([Row([number])], [1]) for number in (11, 12, 13, 14)]


def test_a_threaded_runner_returns_at_once_and_keeps_the_order(batches: list[ForwardBatch]) -> None:
    gated = Gated()
    with threaded(gated) as runner:
        steps = []
        for batch in batches[:2]:
            steps.append(runner.launch(batch))
            steps[-1].sample(None)
        assert gated.calls == []
        gated.gate.set()
        assert [step.result().tokens.tolist() for step in steps] == [[11], [12]]
    assert gated.calls == ["launch 11", "sample 11", "launch 12", "sample 12"]


def test_an_error_in_the_thread_comes_out_of_that_steps_result(
    batches: list[ForwardBatch],
) -> None:
    gated = Gated()
    gated.gate.set()
    with threaded(gated) as runner:
        broken, fine = runner.launch(batches[2]), runner.launch(batches[3])
        broken.sample(None)
        fine.sample(None)
        with pytest.raises(ValueError, match="unlucky"):
            broken.result()
        assert fine.result().tokens.tolist() == [14]
