"""An audit of the KV memory: random schedules under pressure, in which each row that a step reads
is
compared, token by token, with a hash chain of its prompt and output."""

import random
from collections import Counter

import pytest

from pando_worker.policies.eviction import EVICTION_POLICIES
from pando_worker.policies.schedule import SCHEDULE_POLICIES
from pando_worker.rates import Rate
from tests.worker.scheduler.hash_model import expected_tokens
from tests.worker.scheduler.world import World


def audit(seed: int) -> Counter[str]:
    """Run one schedule; returns counts of its events."""
    rng = random.Random(seed)
    page_size = rng.choice([1, 2, 4, 16])
    window = rng.choice([0, 0, 5, 24])
    pages = rng.choice([144, 208, 400]) // page_size
    world = World(
        pages=pages,
        page_size=page_size,
        max_running=rng.choice([4, 12]),
        chunked_prefill_size=rng.choice([16, 32, 128]),
        schedule_policy=rng.choice([*SCHEDULE_POLICIES]),
        eviction_policy=rng.choice([*EVICTION_POLICIES]),
        batching=rng.choice(["decode-first", "prefill-first"]),
        overlap_schedule=rng.random() < 0.7,
        new_token_ratio=rng.choice([0.02, 0.3]),
        max_queued_requests=500,
        host_pages=rng.choice([0, pages // 2, 2 * pages]),
        host_window_pages=pages // 4 if window else 0,
        host_write=rng.choice(["write-back", "write-through-selective"]),
        copy_rate=Rate(),
        window=window,
        window_pages=-(-(window + 2 * 16) // page_size) + pages // 3 if window else 0,
    )
    roots = [[rng.randrange(90) for _ in range(rng.randint(10, 60))] for _ in range(4)]
    sent: dict[str, tuple[list[int], int]] = {}
    happened: Counter[str] = Counter()
    for _ in range(120):
        if rng.random() < 0.4:
            rid, prompt = f"r{len(sent)}", follow_up(rng, roots, world, sent)
            count = rng.randint(1, 48)
            if len(prompt) + count <= world.kv.max_request_tokens:
                sent[rid] = prompt, count
                world.send(rid, prompt, count, priority=rng.randrange(3))
        if sent and rng.random() < 0.05:
            world.abort(rng.choice(list(sent)))
            happened["aborts"] += 1
        world.step()
        if rng.random() < 0.1:
            world.check_ownership()
    world.run()
    world.kv.check_idle()
    for rid, (prompt, count) in sent.items():
        produced = world.tokens[rid]
        assert produced == expected_tokens(prompt, count, window)[: len(produced)]
        happened["requests"] += 1
    stats = world.scheduler.stats()
    happened["retractions"] += stats.retracted_requests_total
    happened["evictions"] += stats.evicted_tokens_total
    happened["loads"] += stats.host_loaded_tokens_total
    return happened


def follow_up(
    rng: random.Random, roots: list[list[int]], world: World, sent: dict[str, tuple[list[int], int]]
) -> list[int]:
    """A new conversation with one of a few prefixes, or the next turn of one."""
    finished = [rid for rid in world.finish if rid in sent]
    if finished and rng.random() < 0.5:
        rid = rng.choice(finished[-8:])
        prompt = [*sent[rid][0], *world.tokens[rid]]
        if len(prompt) < 100:
            return [*prompt, *(rng.randrange(90) for _ in range(rng.randint(1, 8)))]
    return [*rng.choice(roots), *(rng.randrange(90) for _ in range(rng.randint(1, 20)))]


def audit_all(seeds: range) -> None:
    happened: Counter[str] = sum((audit(seed) for seed in seeds), Counter())
    wanted = ("requests", "aborts", "retractions", "evictions", "loads")
    assert all(happened[kind] > len(seeds) // 2 for kind in wanted), happened


def test_every_step_reads_the_right_pages() -> None:
    audit_all(range(20))


@pytest.mark.long
def test_every_step_reads_the_right_pages_in_many_schedules() -> None:
    audit_all(range(1000, 1240))
