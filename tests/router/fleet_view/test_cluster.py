"""A Redis Cluster with a master down or a slot being moved: only the pools there are affected."""

from collections.abc import Callable
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from pando_fleet.placement.keeper import BEAT_S
from pando_fleet.redis.keys import EXPECTED, POOLS, PoolKeys
from tests.fleet.redis.cluster import Cluster, cluster
from tests.fleet.redis_server import RedisServer
from tests.router.world import Replica, RouterClient, serving, until

Start = Callable[..., RedisServer]
PROMPT_S = BEAT_S + 0.25
PLACED = 'pando_router_placements_total{outcome="%s",policy="cache_aware"}'


async def ask(router: RouterClient, model: str) -> int:
    return (await router.post("/v1/completions", {"model": model, "prompt": "hello"})).status


async def states(router: RouterClient) -> dict[str, str]:
    health = (await router.get("/healthz")).json
    found: dict[str, str] = health.get("redis_by_pool", {})
    return found


def has_heartbeat(found: Cluster, pool: str) -> bool:
    """Whether a router has sent one to this pool."""
    with found.of_pool(pool).admin() as admin:
        return bool(admin.exists(PoolKeys(pool).routers))


def last_beat_s(found: Cluster, pool: str) -> float:
    """When the router last sent a heartbeat to this pool, by that pool's Redis."""
    with found.of_pool(pool).admin() as admin:
        ((_, at_ms),) = admin.zrange(PoolKeys(pool).routers, 0, -1, withscores=True)
    return float(at_ms / 1000)


def shortest_gap_s(beats: set[float]) -> float:
    """A busy machine makes some gaps long, but not all."""
    return min((later - earlier for earlier, later in pairwise(sorted(beats))), default=inf)


def goes_down(found: Cluster, pool: str) -> Callable[[], None]:
    master = found.of_pool(pool)
    master.freeze()
    return master.thaw


def dies(found: Cluster, pool: str) -> Callable[[], None]:
    master = found.of_pool(pool)
    master.stop()
    return master.start


def moves(found: Cluster, pool: str) -> Callable[[], None]:
    found.begin_to_move(pool)
    return lambda: found.end_move(pool)


@pytest.mark.parametrize(
    ("fail", "key"), [(goes_down, POOLS), (goes_down, EXPECTED), (dies, POOLS), (moves, POOLS)]
)
async def test_trouble_of_one_shard_is_trouble_of_its_pools_alone(
    start_valkey: Start, fail: Callable[[Cluster, str], Callable[[], None]], key: str
) -> None:
    """`key` concerns all pools and is on the affected shard."""
    with cluster(start_valkey) as found:
        names = [found.pool_on(master) for master in found.masters]
        hurt = found.pool_on(found.of_key(key))
        well = [name for name in names if name != hurt]
        replicas: list[Any] = [Replica(found.url, f"of-{n}", model=n, pool=n) for n in names]
        async with replicas[0], replicas[1], replicas[2], serving(found.url) as router:
            await router.ready(*(f"of-{name}" for name in names))
            assert [await ask(router, name) for name in names] == [200] * 3
            await until(lambda: all(has_heartbeat(found, name) for name in names), "heartbeats")
            mend = fail(found, hurt)

            async def is_away() -> bool:
                assert await ask(router, hurt) == 200
                return (await states(router)).get(hurt) == "away"

            await until(is_away, "the pool's Redis being away")
            placed = await router.metric(PLACED % "shared")
            alone = await router.metric(PLACED % "fallback")
            asked = 0
            beats: dict[str, set[float]] = {name: set() for name in well}

            async def has_gone_on() -> bool:
                nonlocal asked
                for name in well:
                    assert await ask(router, name) == 200
                    asked += 1
                    beats[name].add(last_beat_s(found, name))
                assert not (await states(router)).keys() & set(well)
                # One that waited for the Redis that is frozen would come half a second later.
                return asked >= 80 and all(
                    shortest_gap_s(each) < PROMPT_S for each in beats.values()
                )

            await until(has_gone_on, "requests and prompt heartbeats of the pools that are well")
            assert await router.metric(PLACED % "shared") == placed + asked
            assert await router.metric(PLACED % "fallback") == alone

            other = found.pool_on(found.of_pool(well[0]), but=well[0])
            async with Replica(found.url, "new", model=other, pool=other):
                await router.ready("new")
                assert await ask(router, other) == 200
            await router.ready(*(f"of-{name}" for name in names))
            mend()

            async def is_well() -> bool:
                return not await states(router)

            await until(is_well, "every pool being up again")
