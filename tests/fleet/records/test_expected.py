"""Expected pools: known while no replica serves them, until they are removed."""

import pytest

from pando_fleet.records.decisions import PastDecisions
from pando_fleet.records.expected import ExpectedPools
from pando_fleet.records.rows import LAST_S
from pando_fleet.redis.client import FleetError, connect
from pando_fleet.redis.keys import DECISIONS, EXPECTED


async def test_a_pool_is_expected_until_it_is_removed(redis_url: str) -> None:
    redis = connect(redis_url)
    pools = ExpectedPools(redis)
    assert await pools.read() == {}
    await pools.put("b", ["m", "m-adapter"])
    await pools.put("a", ["n"])
    assert await pools.read() == {"a": ("n",), "b": ("m", "m-adapter")}
    await pools.remove("b")
    assert await pools.read() == {"a": ("n",)}
    await redis.aclose()


async def test_the_owner_of_an_expected_pool_is_known(redis_url: str) -> None:
    redis = connect(redis_url)
    pools = ExpectedPools(redis)
    await pools.put("a", ["n"], owner="default/a")
    await pools.put("b", ["n"])
    await redis.hset(EXPECTED, "old", '{"models": ["n"]}')
    assert await pools.owners() == {"a": "default/a", "b": "", "old": ""}
    assert set(await pools.read()) == {"a", "b", "old"}
    await redis.aclose()


async def test_what_no_operator_says_any_more_ends_by_itself(redis_url: str) -> None:
    redis = connect(redis_url)
    expected, past = ExpectedPools(redis), PastDecisions(redis)

    async def said() -> None:
        await expected.put("a", ["m"])
        await past.put("a", [])

    for _ in range(2):
        await said()
        for key in (EXPECTED, DECISIONS):
            assert LAST_S - 5 < await redis.ttl(key) <= LAST_S
            await redis.expire(key, 5)
    await redis.aclose()


async def test_an_entry_of_another_version_hides_no_other(redis_url: str) -> None:
    redis = connect(redis_url)
    pools = ExpectedPools(redis)
    await pools.put("a", ["n"])
    await redis.hset(EXPECTED, "b", "[]")
    assert await pools.read() == {"a": ("n",)}
    for models in ([], [""]):
        with pytest.raises(FleetError):
            await pools.put("c", models)
    await redis.aclose()
