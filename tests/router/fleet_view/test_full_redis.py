"""A router and replicas with a Redis that is too small: every request is placed by its prefix."""

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.fleet.redis_server import RedisServer
from tests.router.world import Replica, completion, serving, until

MIB = 1 << 20
CHUNKS = 300


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru"])
async def test_no_request_fails_or_loses_its_place_when_prompts_exceed_redis_s_memory(
    start_server: Callable[..., RedisServer], policy: str
) -> None:
    server = start_server("--maxmemory", "8mb", "--maxmemory-policy", policy)
    tokens, rng = 10_000_000, random.Random(1)
    async with (
        Replica(server.url, "a", capacity_tokens=tokens),
        Replica(server.url, "b", capacity_tokens=tokens),
        serving(server.url) as router,
    ):
        await router.ready("a", "b")

        async def ask(number: int) -> int:
            prompt = rng.randbytes(8).hex() + f" {number} " * (256 * CHUNKS // len(f" {number} "))
            return (await router.post("/v1/completions", completion(prompt))).status

        for first in range(0, 500, 10):
            answers = await asyncio.gather(*(ask(n) for n in range(first, first + 10)))
            assert set(answers) == {200}
        with server.admin() as admin:
            # Prompts arrive faster than any engine computes, so a tree may have been evicted.
            assert admin.info("memory")["used_memory"] < 8.5 * MIB
            trees = sum(admin.zcard(key) for key in admin.scan_iter("pando:*:tree:*"))
            assert 2 * CHUNKS < trees < 500 * CHUNKS
            assert admin.zcard("pando:{default}:replicas") == 2
        placed = 'pando_router_placements_total{outcome="shared",policy="cache_aware"}'
        assert await router.metric(placed) == 500

        async def is_up() -> bool:
            return bool((await router.get("/healthz")).json["redis"] == "up")

        await until(is_up, "the trees being within Redis's memory")
