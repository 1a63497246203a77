"""Helpers of tests with engines without heartbeats, to query a router and Redis."""

from typing import Any

from pando_fleet.redis.client import connect
from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat
from tests.router.upstreams.foreign_engines import Engine
from tests.router.world import RouterClient, completion, until

QUICK: dict[str, Any] = {"upstream_interval": 0.1, "unhealthy_after": 2}
IMPATIENT = QUICK | {"health_timeout": 0.5}
LONG = "a shared beginning " * 200  # of 950 tokens


async def beats(redis_url: str) -> dict[str, Heartbeat]:
    """Fresh heartbeats, by replica."""
    redis = connect(redis_url)
    try:
        registry = Registry(redis)
        found = [await registry.replicas(pool) for pool in await registry.pools()]
        return {one.beat.replica: one.beat for p in found for one in p if one.age_ms < FRESH_MS}
    finally:
        await redis.aclose()


async def beat_of(redis_url: str, engine: Engine) -> Heartbeat:
    return (await beats(redis_url))[engine.name]


async def states(router: RouterClient) -> dict[str, tuple[str, bool]]:
    pools = (await router.get("/fleet")).json["pools"].values()
    return {r["replica"]: (r["state"], r["healthy"]) for replicas in pools for r in replicas}


async def becomes(router: RouterClient, engine: Engine, *, healthy: bool) -> None:
    async def is_so() -> bool:
        return (await states(router))[engine.name][1] is healthy

    await until(is_so, f"{engine.name} being {'healthy' if healthy else 'unhealthy'}")


async def homes(router: RouterClient, count: int = 12) -> set[str]:
    return {
        (await router.post("/v1/completions", completion(f"{number} " * 100))).replica
        for number in range(count)
    }
