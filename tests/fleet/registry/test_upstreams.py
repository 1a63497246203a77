"""Routers agree on one incarnation of an engine without heartbeats, and share measured rates."""

import asyncio

import pytest

from pando_fleet.placement.placer import PoolFull
from pando_fleet.registry.upstreams import Sampled, UpstreamRecords
from tests.fleet.world import POOL, World


async def test_routers_that_meet_an_engine_at_once_agree_on_one_incarnation(redis_url: str) -> None:
    async with World.open(redis_url) as world:
        routers = [UpstreamRecords(world.redis) for _ in range(5)]
        agreed = await asyncio.gather(
            *(one.agree(POOL, "a", "model", f"new-{i}") for i, one in enumerate(routers))
        )
        assert len({one.incarnation for one in agreed}) == 1
        later = await routers[0].agree(POOL, "a", "model", "another")
        assert later.incarnation == agreed[0].incarnation
        other = await routers[0].agree(POOL, "b", "model", "another")
        assert other.incarnation == "another"


async def test_an_engine_that_ended_comes_back_as_a_new_one_and_as_fast(redis_url: str) -> None:
    async with World.open(redis_url) as world:
        records = UpstreamRecords(world.redis)
        await records.agree(POOL, "a", "model", "one", prefill=Sampled(500.0, 3))
        await records.ended(POOL, "a", "one")
        back = await records.agree(POOL, "a", "model", "two")
        assert (back.incarnation, back.prefill_tokens_per_s) == ("two", 500.0)
        await records.ended(POOL, "a", "one")  # a router that noticed later
        assert (await records.agree(POOL, "a", "model", "three")).incarnation == "two"
        await records.ended(POOL, "a", "")  # one that started when it was gone
        assert (await records.agree(POOL, "a", "model", "three")).incarnation == "three"


async def test_an_engine_with_other_models_is_another_one(redis_url: str) -> None:
    async with World.open(redis_url) as world:
        records = UpstreamRecords(world.redis)
        await records.agree(POOL, "a", "model", "one", decode=Sampled(50.0, 1))
        changed = await records.agree(POOL, "a", "another model", "two")
        assert (changed.incarnation, changed.decode_tokens_per_s) == ("two", 0.0)


async def test_rates_of_all_routers_count_by_their_samples(redis_url: str) -> None:
    async with World.open(redis_url) as world:
        records = UpstreamRecords(world.redis)

        async def told(value: float, samples: int) -> float:
            found = Sampled(value, samples)
            return (await records.agree(POOL, "a", "m", "i", prefill=found)).prefill_tokens_per_s

        assert await told(1000.0, 1) == 1000.0
        assert await told(0.0, 0) == 1000.0  # a router without traffic changes nothing
        assert await told(2000.0, 1) == pytest.approx(1100.0)
        assert await told(3000.0, 200) == pytest.approx(3000.0, rel=1e-3)


async def test_an_engine_takes_as_many_requests_as_it_says(redis_url: str) -> None:
    async with World.open(redis_url) as world:
        await world.beat("a", max_requests=1)
        await world.beat("b", max_requests=2)
        placed = [await world.place() for _ in range(3)]
        assert sorted(one.chosen.replica for one in placed) == ["a", "b", "b"]
        with pytest.raises(PoolFull):
            await world.place()
        await world.release(placed[0])
        assert (await world.place()).chosen.replica == placed[0].chosen.replica
