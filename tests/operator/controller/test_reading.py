"""The requests on a replica, by its own report or, if it is silent, by the routers' leases."""

from collections.abc import AsyncIterator

import pytest

from pando_fleet.placement.worth import Worths
from pando_fleet.records.loads import Loads
from pando_fleet.records.marks import Marks
from pando_fleet.records.queues import Queues
from pando_fleet.registry.replica import ReplicaState
from pando_operator.controller.observing.reading import Reader
from tests.fleet.world import POOL, World


@pytest.fixture
async def world(valkey_url: str) -> AsyncIterator[World]:
    async with World.open(valkey_url) as world:
        yield world


async def test_a_silent_replica_has_the_requests_that_routers_have_there(redis_url: str) -> None:
    async with World.open(redis_url) as world:
        await follow(world)


async def test_a_stalled_replica_has_what_routers_have_not_taken_from_it(world: World) -> None:
    reader = reader_of(world)
    await world.beat("a", running=3)
    await world.place(prompt_tokens=100, output_tokens=10, lease_ms=1_000)
    await world.beat("a", running=3, waiting=5, state=ReplicaState.STALLED)
    reading = await reader.read()
    assert (reading.requests, reading.stalled) == ({"a": 1}, {"a"})
    world.now_ms += 1_000
    assert (await reader.read()).requests == {"a": 0}
    world.now_ms += 10_000
    assert not (await reader.read()).stalled, "its report is too old"


def reader_of(world: World) -> Reader:
    redis, clock = world.redis, world.clock
    return Reader(
        world.registry,
        Queues(redis, clock),
        Marks(redis, POOL, clock),
        Loads(redis, POOL, clock),
        Worths(redis, POOL, clock),
        POOL,
    )


async def follow(world: World) -> None:
    reader = reader_of(world)
    await world.beat("a", running=3)
    await world.place(prompt_tokens=100, output_tokens=10, lease_ms=60_000)
    assert (await reader.read()).requests == {"a": 3}
    await world.beat("b")
    assert (await reader.read()).requests == {"a": 3, "b": 0}
    world.now_ms += 10_000  # both are silent
    assert (await reader.read()).requests == {"a": 1}
    world.now_ms += 60_000  # the lease has ended
    assert (await reader.read()).requests == {}
