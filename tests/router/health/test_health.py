"""Active health checks: a replica that hangs but sends heartbeats is found and left out."""

from typing import Any

from tests.router.world import (
    Replica,
    RouterClient,
    completion,
    fleet,
    never,
    serving,
    status,
    until,
)

QUICK: dict[str, Any] = {
    "health_interval": 0.05,
    "health_timeout": 0.5,
    "unhealthy_after": 2,
    "healthy_after": 2,
}


async def is_healthy(router: RouterClient, replica: str) -> bool:
    pools = (await router.get("/fleet")).json["pools"].values()
    (found,) = (r["healthy"] for replicas in pools for r in replicas if r["replica"] == replica)
    return bool(found)


async def becomes(router: RouterClient, replica: str, healthy: bool) -> None:
    async def is_so() -> bool:
        return await is_healthy(router, replica) is healthy

    await until(is_so, f"{replica} being {'healthy' if healthy else 'unhealthy'}")


async def homes(router: RouterClient, count: int = 12) -> set[str]:
    return {
        (await router.post("/v1/completions", completion(f"{number} " * 100))).replica
        for number in range(count)
    }


async def test_a_replica_that_hangs_is_left_out_until_it_answers_again(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", **QUICK) as (router, [a, _]):
        a.health = never
        await becomes(router, "a", healthy=False)
        assert await homes(router) == {"b"}
        sample = 'pando_router_replica_healthy{pool="default",replica="a"}'
        assert await router.metric(sample) == 0
        a.health = a.say_name
        await becomes(router, "a", healthy=True)
        assert "a" in await homes(router)


async def test_errors_fail_the_check_and_an_unknown_path_does_not(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", **QUICK) as (router, [a]):
        a.health = status(500)
        await becomes(router, "a", healthy=False)
        a.health = status(404)
        await becomes(router, "a", healthy=True)


async def test_where_all_are_unhealthy_requests_are_served_all_the_same(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", **QUICK) as (router, [a]):
        a.health = status(500)
        await becomes(router, "a", healthy=False)
        assert await homes(router, 3) == {"a"}


async def test_a_restarted_replica_starts_healthy(valkey_url: str) -> None:
    async with serving(valkey_url, **QUICK) as router:
        async with Replica(valkey_url, "a") as a:
            await router.ready("a")
            a.health = status(500)
            await becomes(router, "a", healthy=False)
        async with Replica(valkey_url, "a", port=a.port):
            await becomes(router, "a", healthy=True)


async def test_no_check_is_made_where_none_is_wanted(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", **QUICK | {"health_interval": 0}) as (router, [a]):
        a.health = status(500)
        assert await homes(router, 3) == {"a"}
        assert await is_healthy(router, "a")
