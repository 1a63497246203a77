"""All routers' requests at each replica: from placement to end, and no longer than the lease."""

from pando_fleet.records.loads import Loads
from tests.fleet.world import POOL, World


async def test_requests_count_from_their_placement_to_their_end(world: World) -> None:
    loads = Loads(world.redis, POOL, world.clock)
    await world.beat("a")
    assert await loads.read() == {}
    first = await world.place(prompt_tokens=100, output_tokens=10, lease_ms=10_000)
    await world.place(prompt_tokens=100, output_tokens=10, lease_ms=10_000)
    assert await loads.read() == {"a": 2}
    world.placer.prefilled(first)
    await world.placer.flush()
    assert await loads.read() == {"a": 2}
    world.placer.release(first)
    await world.placer.flush()
    assert await loads.read() == {"a": 1}


async def test_what_a_dead_router_left_ends_though_nobody_places(world: World) -> None:
    loads = Loads(world.redis, POOL, world.clock)
    await world.beat("a")
    await world.place(prompt_tokens=100, output_tokens=10, lease_ms=5_000)
    assert await loads.read() == {"a": 1}
    world.now_ms += 5_001
    assert await loads.read() == {}


async def test_a_replica_s_incarnations_are_one_and_names_may_have_colons(world: World) -> None:
    loads = Loads(world.redis, POOL, world.clock)
    for incarnation in ("1", "2"):
        await world.beat("pod:a", incarnation=incarnation)
        await world.place(prompt_tokens=100, output_tokens=10, lease_ms=10_000)
    assert await loads.read() == {"pod:a": 2}
