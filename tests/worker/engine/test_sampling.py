"""Tokens sampled by the whole engine, in batches, after hits and retractions, are those that
follow from the request's own random numbers and transformers' logits."""

from collections.abc import Sequence
from typing import Any

import pytest

from pando_worker.messages import SamplingParams
from tests.worker.engine.served import Asked, Served, ask
from tests.worker.engine.truth import check_output
from tests.worker.model.checkpoints import prompt

TIGHT = 48  # tokens in a pool so small that the requests below retract each other


def run(llama: Served, requests: Sequence[Asked], *, tokens: int, overlap: bool) -> int:
    """Run all at once and check their output; returns the number of retractions."""
    world = llama.world(tokens, overlap=overlap, chunked_prefill_size=8, new_token_ratio=0.01)
    ask(world, requests)
    world.run()
    for asked in requests:
        produced = world.tokens[asked.rid]
        assert len(produced) == asked.sampling.max_new_tokens
        check_output(llama.reference, asked.prompt, produced, asked.sampling)
    return world.scheduler.stats().retracted_requests_total


DRAWN = [
    SamplingParams(max_new_tokens=14, seed=1),
    SamplingParams(max_new_tokens=14, seed=2**62, temperature=1.7),
    SamplingParams(max_new_tokens=14, seed=-5, temperature=0.8, top_k=9),
    SamplingParams(max_new_tokens=14, seed=4, top_p=0.7, min_p=0.05),
    SamplingParams(max_new_tokens=14, temperature=0),
    SamplingParams(max_new_tokens=14, seed=1, temperature=1.3, top_k=20, top_p=0.9),
]


def test_draws_are_those_of_seed_and_step_whatever_the_batch(llama: Served, overlap: bool) -> None:
    """They run together and retract each other; each finds a part of its prompt in the cache."""
    shared = prompt(12)
    requests = [
        Asked(f"r{index}", [*shared[: 4 * (index % 4)], *prompt(5, seed=index)], sampling)
        for index, sampling in enumerate(DRAWN)
    ]
    assert run(llama, requests, tokens=TIGHT, overlap=overlap) > 0
    assert run(llama, requests, tokens=1024, overlap=overlap) == 0


PENALTIES: dict[str, dict[str, Any]] = {
    "frequency": {"frequency_penalty": 1.5},
    "presence": {"presence_penalty": 2.0},
    "repetition": {"repetition_penalty": 1.4},
    "all, and a bias": {
        "frequency_penalty": 0.5,
        "presence_penalty": -0.7,
        "repetition_penalty": 1.2,
        "logit_bias": {7: 2.0, 9: -3.0},
    },
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_penalties_count_what_was_put_out_and_repetition_the_prompt_too(
    llama: Served, overlap: bool, temperature: float
) -> None:
    """The prompts contain the model's most likely tokens, so it shows whether they are counted."""
    requests = []
    for index, (name, penalties) in enumerate(PENALTIES.items()):
        start = prompt(5, seed=index)
        liked = [*start, *llama.reference.greedy(start, 6)]
        sampling = SamplingParams(
            max_new_tokens=14, seed=index, temperature=temperature, **penalties
        )
        requests.append(Asked(name, liked, sampling))
    assert run(llama, requests, tokens=TIGHT, overlap=overlap) > 0
