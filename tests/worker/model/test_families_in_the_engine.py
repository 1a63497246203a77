"""Every family of models through scheduler, pools, cache and sampler: the tokens of transformers,
in a pool so small that requests are retracted and start over, and released behind windows."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.threaded import ThreadedRunner
from pando_worker.scheduler.assembly import pools_of
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.conftest import References
from tests.worker.scheduler.world import World

PAGES, PAGE_SIZE = 14, 4


def engine(model: Path, context_length: int | None, pages: int = PAGES, **changes: Any) -> World:
    settings = WorkerSettings(
        model=str(model),
        page_size=PAGE_SIZE,
        max_total_tokens=pages * PAGE_SIZE,
        context_length=context_length,
        threads=1,
        cpu_kernels=changes.pop("cpu_kernels", "off"),
        chunked_prefill_size=8,
        **changes,
    )
    runner = TorchModelRunner(settings)
    for tensor in (*runner.kv_pool.k, *runner.kv_pool.v):
        tensor[PAGE_SIZE:] = torch.nan  # what nobody stored; a trial has used the first page
    policy = {name: changes[name] for name in ("host_write",) if name in changes}
    return World(
        page_size=PAGE_SIZE,
        chunked_prefill_size=8,
        new_token_ratio=0.01,
        watermark=0,
        runner=ThreadedRunner(runner),
        pools=pools_of(runner, PAGE_SIZE),
        **policy,
    )


def test_retracted_requests_get_the_tokens_of_transformers(family: Reference) -> None:
    # Half as many window pages would be the limit, and leave room in the others.
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
    """One request after the other, so that each hits what the ones before it left: whole turns, the
    middle of a prompt, and what had to go."""
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
    """Conversations that go on in turns, with room on the device for one of them."""
    family = reference_of(name)
    world = engine(family.path, family.context_length, 24, host_memory_gib=0.001, host_write=write)
    assert world.kv.host
    assert world.kv.host.windows
    turns = [prompt(50, seed=seed) for seed in range(3)]
    # Each goes on twice at once, so that it has been hit twice; and then once the others did.
    for rid, number in enumerate([0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 1, 2]):
        tokens = turns[number]
        world.send(f"{rid}", tokens, max_new_tokens=5)
        world.run()
        world.check_ownership()
        assert world.tokens[f"{rid}"] == family.greedy(tokens, 5)
        assert rid < 9 or world.cached[f"{rid}"] >= 48
        turns[number] = [*tokens, *world.tokens[f"{rid}"], 7]
    assert any(batch.window_loads for batch in world.batches)
    assert world.kv.host_loaded_tokens > 0
