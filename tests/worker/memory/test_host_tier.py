"""The purpose of the host tier: prefixes survive eviction, and a retraction costs only a copy.

The hash model reads every prefix through the pools, so a wrong copy would change its tokens.
"""

import numpy as np
import pytest

from pando_worker.memory.host_tier import HostTier, copying_pays
from pando_worker.memory.page_allocator import PageAllocator
from pando_worker.memory.radix_cache import RadixCache
from pando_worker.rates import Rate
from pando_worker.settings import WorkerSettings
from tests.worker.scheduler.hash_model import expected_tokens
from tests.worker.scheduler.world import World


def conversation(number: int) -> list[int]:
    return [number] * 32


def run_in_turn(world: World, numbers: list[int]) -> list[int]:
    """Runs conversations one at a time; returns each one's cached tokens."""
    found = []
    for number in numbers:
        rid = f"{number}.{len(world.tokens)}"
        world.send(rid, conversation(number), max_new_tokens=2)
        world.run()
        assert world.tokens[rid] == expected_tokens(conversation(number), 2)
        found.append(world.cached[rid])
    return found


def test_evicted_prefixes_come_back_from_the_host() -> None:
    without = World(pages=20, page_size=4)
    world = World(pages=20, page_size=4, host_pages=40)
    # The end of the oldest one is evicted, as much as needed.
    assert run_in_turn(without, [1, 2, 3, 1, 2, 3]) == [0, 0, 0, 12, 12, 12]
    assert run_in_turn(world, [1, 2, 3, 1, 2, 3]) == [0, 0, 0, 28, 28, 28]
    stats = world.scheduler.stats()
    assert stats.host_loaded_tokens_total > 0
    assert stats.evicted_tokens_total == 0
    assert stats.host_capacity_tokens == 160
    assert 0 < stats.host_tokens <= 160


def test_a_full_host_forgets_what_was_used_longest_ago() -> None:
    world = World(pages=10, page_size=4, host_pages=10)
    assert run_in_turn(world, [1, 2, 3, 2, 1]) == [0, 0, 0, 28, 0]
    assert world.scheduler.stats().evicted_tokens_total > 0


def test_what_both_tiers_lost_counts_as_hot_for_as_long_as_both_together_would_hold_it() -> None:
    world = World(pages=40, page_size=4, host_pages=80)  # three of these prompts
    for index, number in enumerate((1, 2, 3, 4, 5, 1)):
        world.send(f"{index}", [number] * 130, max_new_tokens=1)
        world.run()
    assert world.scheduler.stats().hot_evicted_tokens_total == 128  # its two whole blocks


def test_write_through_selective_stores_what_was_hit_twice_and_nothing_else() -> None:
    world = World(pages=20, page_size=4, host_pages=40, host_write="write-through-selective")
    run_in_turn(world, [1, 1])
    assert world.scheduler.stats().host_tokens == 0
    run_in_turn(world, [1])
    assert world.scheduler.stats().host_tokens == 28
    assert run_in_turn(world, [2, 3, 4, 1, 2]) == [0, 0, 0, 28, 0]


def test_nothing_is_copied_where_computing_is_faster() -> None:
    slow = Rate()
    slow.add(1, seconds=1e6)
    world = World(pages=20, page_size=4, host_pages=40, copy_rate=slow)
    assert run_in_turn(world, [1, 2, 3, 1]) == [0, 0, 0, 12]  # what the device still had
    assert world.scheduler.stats().host_stored_tokens_total == 0


def test_a_prefix_that_the_host_has_is_computed_once_where_copying_does_not_pay() -> None:
    rate = Rate()
    world = World(pages=60, page_size=4, host_pages=200, copy_rate=rate)
    shared = [*range(90), *range(30)]
    for prompt in (shared, [91] * 200):  # the second one evicts the first
        world.send(f"{prompt[-1]}", prompt, max_new_tokens=1)
        world.run()
    assert world.cached_len(shared) == 120
    on_device = len(world.kv.cache.pages_of(np.array(shared, dtype=np.int32))) * 4
    assert on_device < 80
    rate.add(1, seconds=1e9)
    assert world.kv.prefix_len(np.array(shared, dtype=np.int32)) == on_device
    for last in (1, 2):
        world.send(f"with {last}", [*shared, last], max_new_tokens=1)
    world.run()
    assert world.cached["with 1"] == on_device
    assert world.cached["with 2"] == 120
    for last in (1, 2):
        assert world.tokens[f"with {last}"] == expected_tokens([*shared, last], 1)


@pytest.mark.parametrize("write", ["write-back", "write-through-selective"])
def test_a_retracted_request_comes_back_with_what_it_had_computed(write: str) -> None:
    recomputed: dict[int, int] = {}
    for host_pages in (0, 40):
        world = World(
            pages=16,
            page_size=4,
            new_token_ratio=0.01,
            watermark=0,
            host_pages=host_pages,
            host_write=write,
        )
        for number in range(4):
            world.send(str(number), [number] * 8, max_new_tokens=24)
        world.run()
        for number in range(4):
            assert world.tokens[str(number)] == expected_tokens([number] * 8, 24)
        assert world.scheduler.stats().retracted_requests_total > 0
        recomputed[host_pages] = sum(len(batch.input_ids) for batch in world.batches)
    assert recomputed[40] < recomputed[0]


def test_pages_that_are_about_to_be_loaded_are_not_stored_over() -> None:
    """Also if the loaded prefix is split before its copies run."""
    allocator = PageAllocator(16)
    host = HostTier(12, num_device_pages=16)
    cache = RadixCache(allocator, page_size=1, host=host, block_tokens=1)
    ours, old, new = (np.arange(n, n + 8, dtype=np.int32) for n in (0, 100, 200))
    cache.insert(ours, allocator.alloc(8))
    cache.insert(old[:4], allocator.alloc(4))
    cache.evict(12)  # to the host, which is full with it
    host.take_copies()

    cache.inc_lock_ref(cache.load(cache.match_prefix(ours)).node)
    cache.match_prefix(ours[:4])  # splits it
    cache.match_prefix(old[:4])  # used later, so ours would be evicted first
    cache.insert(new[:4], allocator.alloc(4))
    cache.evict(4)
    stores, loads = host.take_copies()

    assert stores is not None
    assert loads is not None
    assert len(loads.host) == 8
    assert not set(stores.host.tolist()) & set(loads.host.tolist())
    assert host.lost_pages == 0


def test_copying_pays_where_it_takes_less_time_than_computing() -> None:
    # 100 kB a token: 10 GB/s are 10 microseconds a copy; 40,000 tokens/s are 25.
    rates = {"bytes_per_token": 1e5, "copy_bytes_per_s": 1e10, "prefill_tokens_per_s": 4e4}
    assert copying_pays(2, **rates)
    assert not copying_pays(3, **rates)
    assert copying_pays(3, **rates | {"copy_bytes_per_s": 0})  # not measured yet: tried


def test_host_memory_without_a_radix_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="needs radix_cache, which is off"):
        WorkerSettings(model="m", host_memory_gib=1, radix_cache=False)


def test_a_full_host_forgets_the_end_of_the_oldest_prefix_and_no_more_than_it_must() -> None:
    allocator = PageAllocator(16)
    cache = RadixCache(
        allocator, page_size=1, host=HostTier(8, num_device_pages=16), block_tokens=1
    )
    old, new = (np.arange(n, n + 8, dtype=np.int32) for n in (0, 100))
    cache.insert(old, allocator.alloc(8))
    cache.evict(8)
    cache.insert(new[:2], allocator.alloc(2))
    cache.evict(2)
    assert (cache.prefix_len(old), cache.prefix_len(new)) == (6, 2)
    cache.count_use(old, cache.match_prefix(old))
    assert cache.hot_evicted_tokens == 2, "evicted tokens are requested again"
