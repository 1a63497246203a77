"""What runs on a replica, by its own word or, where it is silent, by what routers sent there."""

from pando_fleet.loads import Loads
from pando_fleet.marks import Marks
from pando_fleet.queues import Queues
from pando_fleet.worth import Worths
from pando_operator.controller.reading import Reader
from tests.fleet.world import POOL, World


async def test_a_silent_replica_has_the_requests_that_routers_have_there(redis_url: str) -> None:
    async with World.open(redis_url) as world:
        await follow(world)


async def follow(world: World) -> None:
    redis, clock = world.redis, world.clock
    reader = Reader(
        world.registry,
        Queues(redis, clock),
        Marks(redis, POOL, clock),
        Loads(redis, POOL, clock),
        Worths(redis, POOL, clock),
        POOL,
    )
    await world.beat("a", running=3)
    await world.place(prompt_tokens=100, output_tokens=10, lease_ms=60_000)
    assert (await reader.read()).requests == {"a": 3}
    await world.beat("b")
    assert (await reader.read()).requests == {"a": 3, "b": 0}
    world.now_ms += 10_000  # both are silent
    assert (await reader.read()).requests == {"a": 1}
    world.now_ms += 60_000  # the lease has ended
    assert (await reader.read()).requests == {}
