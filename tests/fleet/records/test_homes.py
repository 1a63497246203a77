"""Which replica keeps which answer, by name: bounded, and the same for every router."""

from pando_fleet.records.homes import MAX_NAME_BYTES, Homes
from pando_fleet.redis.layout.constants import HOMES_KEPT_MS
from tests.fleet.world import POOL, World


async def test_a_name_is_found_by_every_router_in_its_own_pool(world: World) -> None:
    await Homes(world.redis).remember(POOL, ["resp_1", "conv_1"], "i1")
    homes = Homes(world.redis)
    assert [await homes.find(POOL, name) for name in ("resp_1", "conv_1")] == ["i1", "i1"]
    assert await homes.find(POOL, "resp_2") is None
    assert await homes.find("other", "resp_1") is None
    await homes.remember(POOL, ["conv_1"], "i2")
    assert await homes.find(POOL, "conv_1") == "i2"


async def test_the_names_used_longest_ago_are_forgotten_first(world: World) -> None:
    homes = Homes(world.redis, world.clock, max_names=3)
    for name in ("a", "b", "c", "a", "d", "e"):
        world.now_ms += 1
        await homes.remember(POOL, [name], f"i-{name}")
    known = {name: await homes.find(POOL, name) for name in "abcde"}
    assert known == {"a": "i-a", "b": None, "c": None, "d": "i-d", "e": "i-e"}


async def test_all_keys_end_by_themselves(world: World) -> None:
    await Homes(world.redis).remember(POOL, ["a"], "i")
    keys = [key async for key in world.redis.scan_iter()]
    assert len(keys) == 2
    for key in keys:
        assert 0 < await world.redis.pttl(key) <= HOMES_KEPT_MS


async def test_what_is_no_name_of_an_engine_is_neither_kept_nor_looked_for(world: World) -> None:
    homes = Homes(world.redis)
    for name in ("", "x" * (MAX_NAME_BYTES + 1)):
        await homes.remember(POOL, [name], "i")
        assert await homes.find(POOL, name) is None
    assert [key async for key in world.redis.scan_iter()] == []
