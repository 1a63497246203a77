"""Requests wait for a pool that has no replicas but will wake, and Redis has their number."""

from typing import Any

import pytest

from pando_fleet.records.expected import ExpectedPools
from pando_fleet.records.queues import Queues
from pando_fleet.redis.client import connect
from pando_fleet.registry.replica import ReplicaState
from tests.router.admission.gate import ask, error, queued
from tests.router.world import Replica, RouterClient, completion, serving, until


@pytest.mark.parametrize("known_by", ["redis", "settings", "a starting replica"])
async def test_requests_wait_for_a_pool_that_wakes(valkey_url: str, known_by: str) -> None:
    redis = connect(valkey_url)
    settings: dict[str, Any] = (
        {"expected_pools": {"default": "m"}} if known_by == "settings" else {}
    )
    if known_by == "redis":
        await ExpectedPools(redis).put("default", ["m"])
    async with serving(valkey_url, **settings) as router:
        if known_by == "a starting replica":
            sleeper = Replica(valkey_url, "a")
            sleeper.state = ReplicaState.STARTING
            async with sleeper as a:
                await router.ready("a", state="starting")
                waiting = ask(router, "hello")
                await queued(router, 1)
                await a.say(state=ReplicaState.READY)
                assert (await waiting).replica == "a"
        else:

            async def ready() -> bool:
                return (await router.get("/readyz")).status == 200

            await until(ready, "the router taking requests for a pool that sleeps")
            waiting = ask(router, "hello")
            await queued(router, 1)
            async with Replica(valkey_url, "a"):
                assert (await waiting).replica == "a"
    await redis.aclose()


async def test_a_pool_that_sleeps_too_long_is_distinguished_from_one_that_does_not_exist(
    valkey_url: str,
) -> None:
    settings: dict[str, Any] = {"expected_pools": {"default": "m"}, "queue_timeout": 0.1}
    async with serving(valkey_url, **settings) as router:
        answer = await router.post("/v1/completions", completion())
        assert error(answer) == (503, "queue_timeout")
        answer = await router.post("/v1/completions", {"model": "other", "prompt": "x"})
        assert error(answer) == (404, "model_not_found")
        models = (await router.get("/v1/models")).json["data"]
        assert [model["id"] for model in models] == ["m"]


async def test_the_queues_length_is_in_redis_while_requests_wait(valkey_url: str) -> None:
    redis = connect(valkey_url)
    queues = Queues(redis)
    await ExpectedPools(redis).put("default", ["m"])
    async with serving(valkey_url) as one, serving(valkey_url) as two:
        tasks = []
        for router in (one, two):

            async def known(router: RouterClient = router) -> bool:
                return (await router.get("/readyz")).status == 200

            await until(known, "the sleeping pool being known")
            tasks += [ask(router, "0"), ask(router, "1")]

        async def told(count: int) -> bool:
            return (await queues.read("default")).requests == count

        await until(lambda: told(4), "both routers' queues in Redis")
        waiting = await queues.read("default")
        assert waiting.waited_ms > 0
        assert waiting.tokens == 4 * (1 + 256), "a byte of prompt, and the answer"
        async with Replica(valkey_url, "a"):
            assert {(await task).status for task in tasks} == {200}
            await until(lambda: told(0), "empty queues in Redis")
    await redis.aclose()
