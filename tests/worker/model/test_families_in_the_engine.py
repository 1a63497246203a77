"""Every family of models through scheduler, pools, cache and sampler gives the tokens of
transformers, in a pool so small that requests are retracted, and with pages released behind
windows."""

import pytest
import torch
from torch import Tensor

from pando_worker.messages import LogprobsWanted, TokenLogprob
from tests.worker.model.checkpoints import SHAPE, Reference, prompt
from tests.worker.model.conftest import References
from tests.worker.model.engine import PAGE_SIZE, engine

HIT = [
    "llama",
    "mistral, window",
    "qwen3, windows",
    "phi3, long context",
    "mixtral",
    "gemma2",
    "gemma3",
    "gpt-oss",
    "deepseek-v2, groups",
    "deepseek-v3",
]


def test_retracted_requests_get_the_tokens_of_transformers(family: Reference) -> None:
    # With half as many window pages, these would be the limit and the others would have room.
    world = engine(family.path, family.context_length, window_ratio=0.9)
    prompts = {f"r{index}": prompt(9, seed=index) for index in range(3)}
    for rid, tokens in prompts.items():
        world.send(rid, tokens, max_new_tokens=18)
    world.run()
    world.send("again", [*prompts["r0"], *world.tokens["r0"][:8]], max_new_tokens=4)
    world.run()
    assert world.scheduler.stats().retracted_requests_total > 0
    for rid, tokens in prompts.items():
        assert world.tokens[rid] == family.greedy(tokens, 18)
    assert world.tokens["again"] == family.greedy(prompts["r0"], 18)[8:12]


@pytest.mark.parametrize("kernels", ["off", "on"])
@pytest.mark.parametrize("name", ["mistral, window", "mixtral", "gemma2", "gemma3", "gpt-oss"])
def test_tokens_are_right_where_pages_are_released_behind_the_window(
    reference_of: References, name: str, kernels: str
) -> None:
    """One request at a time, so that each hits what earlier ones left: whole turns, the middle of a
    prompt, and released pages."""
    family = reference_of(name)
    world = engine(family.path, family.context_length, 60, cpu_kernels=kernels)
    assert world.kv.windows, "the layers share one pool"
    capacity = world.kv.windows.allocator.num_pages
    world.send("long", prompt(40), max_new_tokens=60)
    most = 0
    while not world.scheduler.is_idle:
        world.step()
        world.check_ownership()
        most = max(most, world.kv.windows.num_pinned)
    assert most < 100 // PAGE_SIZE / 2
    turns = [*prompt(40), *world.tokens["long"]]
    prompts = {
        "next turn": [*turns, 5, 6],
        "middle": [*turns[:26], 7, 8],
        "other": prompt(4 * capacity - 30, seed=9),
        "all again": [*turns, 9],
    }
    for rid, tokens in prompts.items():
        world.send(rid, tokens, max_new_tokens=7)
        world.run()
    assert world.cached["next turn"] == 96
    assert world.tokens["long"] == family.greedy(prompt(40), 60)
    for rid, tokens in prompts.items():
        assert world.tokens[rid] == family.greedy(tokens, 7), rid


@pytest.mark.parametrize("write", ["write-back", "write-through-selective"])
@pytest.mark.parametrize("name", ["mistral, window", "gemma3", "gpt-oss"])
def test_tokens_are_right_where_window_pages_come_back_from_the_host(
    reference_of: References, name: str, write: str
) -> None:
    """Conversations by turns, with room on the device for one of them."""
    family = reference_of(name)
    world = engine(family.path, family.context_length, 24, host_memory_gib=0.001, host_write=write)
    assert world.kv.host
    assert world.kv.host.windows
    turns = [prompt(50, seed=seed) for seed in range(3)]
    # Each continues twice at once, so that it has two hits, and again after the others did.
    for rid, number in enumerate([0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 1, 2]):
        tokens = turns[number]
        world.send(f"{rid}", tokens, max_new_tokens=5)
        world.run()
        world.check_ownership()
        assert world.tokens[f"{rid}"] == family.greedy(tokens, 5)
        assert rid < 9 or world.cached[f"{rid}"] >= 48
        turns[number] = [*tokens, *world.tokens[f"{rid}"], 7]
    assert any(batch.window_loads for batch in world.batches)
    assert world.scheduler.stats().host_loaded_tokens_total > 0


def test_latents_come_back_from_the_host(reference_of: References) -> None:
    """Conversations by turns, with room on the device for one of them."""
    family = reference_of("deepseek-v3")
    world = engine(family.path, family.context_length, 24, host_memory_gib=0.001)
    assert world.kv.host
    turns = [prompt(50, seed=seed) for seed in range(3)]
    for rid, number in enumerate([0, 1, 2, 0, 1, 2]):
        tokens = turns[number]
        world.send(f"{rid}", tokens, max_new_tokens=5)
        world.run()
        world.check_ownership()
        assert world.tokens[f"{rid}"] == family.greedy(tokens, 5)
        assert rid < 3 or world.cached[f"{rid}"] >= 48
        turns[number] = [*tokens, *world.tokens[f"{rid}"], 7]
    assert world.scheduler.stats().host_loaded_tokens_total > 0


def distributions(found: list[TokenLogprob]) -> Tensor:
    """Log-probabilities of the whole vocabulary, float64 [len(found), vocab_size], normalised to a
    sum of exactly 1, which float32 misses slightly."""
    ids = torch.tensor([one.top_ids for one in found])
    told = torch.tensor([one.top_logprobs for one in found], dtype=torch.float64)
    return torch.empty_like(told).scatter_(1, ids, told).log_softmax(-1)


def assert_same_distributions(found: Tensor, expected: Tensor) -> None:
    assert float((found - expected).abs().max()) < 2e-4
    assert float((expected.exp() * (expected - found)).sum(-1).max()) < 1e-8


@pytest.mark.parametrize("name", HIT)
def test_a_cache_hit_does_not_change_what_kernels_and_tapes_compute(
    reference_of: References, name: str
) -> None:
    """The whole vocabulary's log-probabilities at the end of a prompt and in the following decode
    steps, without a hit and with hits of two lengths."""
    family = reference_of(name)
    world = engine(family.path, family.context_length, 60, cpu_kernels="on")
    tokens, top = prompt(30, seed=1), SHAPE["vocab_size"]
    told = {}
    for hit in (0, 12, 20):  # in whole pages, before the scored tokens
        rid = f"after {hit}"
        wanted = LogprobsWanted(top=top, prompt_start=hit + 2)
        world.send(rid, tokens, max_new_tokens=9, logprobs=wanted)
        world.run()
        assert world.cached[rid] == hit
        told[hit] = distributions([*world.prompt_logprobs[rid], *world.logprobs[rid]])
    output = world.tokens["after 0"]
    truth = family.all_logits([*tokens, *output])[:-1].double().log_softmax(-1)
    for hit, found in told.items():
        assert world.tokens[f"after {hit}"] == output
        assert_same_distributions(found, told[0][-len(found) :])
        assert_same_distributions(found, truth[-len(found) :])
