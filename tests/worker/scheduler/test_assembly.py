"""How a scheduler is assembled, from the settings and the sizes of a model's pools. `World` uses
the
same code, so other tests cover most settings.
"""

from pathlib import Path

import pytest
from transformers import MistralConfig

from pando_worker.pools import Pools
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference
from tests.worker.scheduler.world import World


@pytest.mark.parametrize(("policy", "victim"), [("fifo", "a"), ("lru", "b"), ("lfu", "c")])
def test_the_eviction_policy_is_the_one_set(policy: str, victim: str) -> None:
    """The oldest, the least recently used and the least used are three different prefixes."""
    world = World(pages=25, page_size=4, eviction_policy=policy)
    prompts = {name: [number] * 32 for number, name in enumerate("abc")}
    for turn, names in enumerate(["abc", "bbcaa"]):
        for index, name in enumerate(names):
            world.send(f"{turn}.{index}", [*prompts[name], 9], max_new_tokens=1)
            world.run()
            assert world.cached[f"{turn}.{index}"] == 32 * turn
    assert all(world.cached_len(prompt) == 32 for prompt in prompts.values())
    world.send("new", [9] * 8, max_new_tokens=1)
    world.run()
    assert [name for name in "abc" if world.cached_len(prompts[name]) < 32] == [victim]


def test_pools_are_those_of_the_model(tmp_path: Path) -> None:
    reference = Reference(tmp_path)  # two layers with two KV heads of 8 numbers each
    settings = WorkerSettings(
        model=str(tmp_path),
        page_size=4,
        max_total_tokens=62,
        context_length=40,
        host_memory_gib=10_000 / 2**30,
        threads=1,
        cpu_kernels="off",
    )
    model = TorchModelRunner(settings)
    page_bytes = 4 * 2 * 2 * 2 * 8 * 4
    assert model.pools == Pools(
        weight_bytes=sum(weight.nbytes for weight in reference.model.parameters()),
        capacity_tokens=60,
        context_length=40,
        host_pages=10_000 // page_bytes,
        host_page_bytes=page_bytes,
        copy_rate=model.host_pool.rate,
    )


def test_pools_of_layers_with_a_window_are_those_of_the_model(tmp_path: Path) -> None:
    Reference(tmp_path, config_type=MistralConfig, sliding_window=6)
    settings = WorkerSettings(
        model=str(tmp_path),
        page_size=4,
        max_total_tokens=400,
        window_ratio=0.25,
        chunked_prefill_size=16,
        host_memory_gib=0.001,
        threads=1,
        cpu_kernels="off",
    )
    model = TorchModelRunner(settings)
    pools = model.pools
    assert (pools.capacity_tokens, pools.window, pools.window_pages) == (400, 6, 25)
    assert (pools.host_pages, pools.host_window_pages) == (4194, 1048)  # 1,024 bytes each of these


def test_a_request_has_the_context_of_the_model_and_no_more() -> None:
    world = World(max_request_tokens=20)
    world.send("longest", range(16), max_new_tokens=4)
    world.send("longer", range(16), max_new_tokens=5)
    world.run()
    assert len(world.tokens["longest"]) == 4
    assert "limit of 20 tokens" in world.rejected["longer"].message
