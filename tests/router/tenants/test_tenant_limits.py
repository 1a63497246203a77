"""Rate limits of tenants with a real router and a real Redis."""

import asyncio
from pathlib import Path
from typing import Any

from pando_fleet.redis.client import connect
from tests.fleet.redis.front import Front
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.router.tenants.tenants_world import bearer, guarded, key_file
from tests.router.world import (
    Replica,
    RouterClient,
    Stream,
    cached,
    chat,
    completion,
    fleet,
    redis_is,
    status,
    until,
)


async def test_requests_above_the_limit_get_429_with_when_to_come_back(
    redis_url: str, tmp_path: Path
) -> None:
    file = key_file(tmp_path, a={"requests_per_minute": 2}, b={})
    async with Replica(redis_url, "r") as replica, guarded(redis_url, file, replica) as router:
        answers = [
            await router.post("/v1/completions", completion(), **bearer("a")) for _ in range(3)
        ]
        assert [answer.status for answer in answers] == [200, 200, 429]
        left = [answer.headers["x-ratelimit-remaining-requests"] for answer in answers]
        assert left == ["1", "0", "0"]
        refused = answers[2]
        assert refused.headers["x-ratelimit-limit-requests"] == "2"
        assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
        assert "x-ratelimit-limit-tokens" not in refused.headers
        assert 20 < int(refused.headers["retry-after"]) <= 30
        wait_ms = int(refused.headers["retry-after-ms"])
        assert -(-wait_ms // 1000) == int(refused.headers["retry-after"])
        error = refused.json["error"]
        assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
        assert len(replica.received) == 2
        assert (await router.post("/v1/completions", completion(), **bearer("b"))).status == 200
        limited = 'pando_router_tenant_limited_total{limit="requests",tenant="a"}'
        assert await router.metric(limited) == 1
        assert await router.metric('pando_router_tenant_requests_total{tenant="a"}') == 3


async def test_two_routers_share_a_tenants_limit(redis_url: str, tmp_path: Path) -> None:
    file = key_file(tmp_path, a={"requests_per_minute": 10})
    async with (
        Replica(redis_url, "r") as replica,
        guarded(redis_url, file, replica) as one,
        guarded(redis_url, file, replica) as two,
    ):
        answers = await asyncio.gather(
            *(
                router.post("/v1/completions", completion(), **bearer("a"))
                for router in (one, two)
                for _ in range(10)
            )
        )
        assert sorted(answer.status for answer in answers) == [200] * 10 + [429] * 10


async def left_of(redis_url: str, tenant: str, limit: int) -> float:
    """Tokens in a bucket, read from Redis."""
    redis = connect(redis_url)
    try:
        full_at = float(await redis.hget(f"pando:limits:{tenant}", "tokens") or 0)
        seconds, micros = await redis.time()
        missing_ms = max(0.0, full_at - seconds * 1000 - micros / 1000)
        return limit - missing_ms * limit / 60_000
    finally:
        await redis.aclose()


LIMIT = 60_000


USAGE = b'{"text": "", "usage": {"prompt_tokens": 4000, "completion_tokens": 6000}}'


async def settles_at(redis_url: str, used: int) -> None:
    """Waits until `used` tokens are missing; meanwhile 1,000 come back each second."""

    async def settled() -> bool:
        return LIMIT - used <= await left_of(redis_url, "a", LIMIT) <= LIMIT - used + 3_000

    await until(settled, f"{used} tokens are taken")


async def test_tokens_are_settled_by_the_usage_of_the_answer(
    redis_url: str, tmp_path: Path
) -> None:
    stream = Stream("application/json")
    file = key_file(tmp_path, a={"tokens_per_minute": LIMIT})
    async with Replica(redis_url, "r") as replica, guarded(redis_url, file, replica) as router:
        replica.answer = stream
        body = completion("hi", max_tokens=30_000)
        asked = asyncio.create_task(router.post("/v1/completions", body | {"n": 1}, **bearer("a")))
        await stream.started.wait()
        stream.put(USAGE)
        stream.end()
        answer = await asked
        assert answer.headers["x-ratelimit-limit-tokens"] == str(LIMIT)
        await settles_at(redis_url, 10_000)
        for kind, tokens in (("prompt", 4000), ("output", 6000)):
            sample = f'pando_router_tenant_tokens_total{{kind="{kind}",tenant="a"}}'
            assert await router.metric(sample) == tokens


async def test_without_usage_the_prompt_header_and_the_events_count(
    redis_url: str, tmp_path: Path
) -> None:
    file = key_file(tmp_path, a={"tokens_per_minute": LIMIT})
    async with Replica(redis_url, "r") as replica, guarded(redis_url, file, replica) as router:
        replica.answer = cached(0, 7_000)
        await router.post("/v1/completions", completion(), **bearer("a"))
        await settles_at(redis_url, 7_000)
        stream = replica.answer = Stream()
        asked = asyncio.create_task(
            router.post("/v1/completions", completion(stream=True), **bearer("a"))
        )
        await stream.started.wait()
        for _ in range(50):
            stream.put(b'data: {"choices": []}\n\n' * 100)
        stream.end()
        await asked
        sample = 'pando_router_tenant_tokens_total{kind="output",tenant="a"}'
        assert await router.metric(sample) == 5_000


async def test_a_request_that_got_no_answer_costs_no_tokens(redis_url: str, tmp_path: Path) -> None:
    file = key_file(tmp_path, a={"tokens_per_minute": LIMIT})
    async with Replica(redis_url, "r") as replica, guarded(redis_url, file, replica) as router:
        replica.answer = status(400)
        answer = await router.post("/v1/completions", completion("x" * 100_000), **bearer("a"))
        assert int(answer.headers["x-ratelimit-remaining-tokens"]) < LIMIT - 20_000
        await settles_at(redis_url, 0)


async def test_a_prompt_that_a_replica_has_is_paid_for_by_a_client_that_leaves(
    redis_url: str, tmp_path: Path
) -> None:
    file = key_file(tmp_path, a={"tokens_per_minute": LIMIT})
    async with Replica(redis_url, "r") as replica, guarded(redis_url, file, replica) as router:
        replica.answer = Stream()
        body = completion("x" * 100_000, max_tokens=100)
        asked = asyncio.create_task(router.post("/v1/completions", body, **bearer("a")))
        await until(lambda: replica.received, "the replica has it")
        asked.cancel()
        await until(lambda: replica.cancelled, "the replica's request is cancelled")
        sample = 'pando_router_tenant_tokens_total{kind="prompt",tenant="a"}'

        async def paid() -> float:
            return await router.metric(sample)

        await until(paid, "it is counted")
        prompt = await paid()
        assert prompt > 20_000
        await settles_at(redis_url, int(prompt))


async def test_a_prompt_that_no_replica_took_costs_nothing(redis_url: str, tmp_path: Path) -> None:
    file = key_file(tmp_path, a={"tokens_per_minute": LIMIT})
    async with Replica(redis_url, "r") as replica, guarded(redis_url, file, replica) as router:
        for refusal in (status(503), status(429)):
            replica.answer = refusal
            answer = await router.post("/v1/completions", completion("x" * 100_000), **bearer("a"))
            assert answer.status in (429, 503)
            await settles_at(redis_url, 0)


async def test_tokens_above_the_limit_get_429(redis_url: str, tmp_path: Path) -> None:
    file = key_file(tmp_path, a={"tokens_per_minute": 1_000})
    async with Replica(redis_url, "r") as replica, guarded(redis_url, file, replica) as router:
        replica.answer = cached(0, 3_000)
        body = chat("hi", max_tokens=100)
        assert (await router.post("/v1/chat/completions", body, **bearer("a"))).status == 200

        async def refused() -> bool:
            answer = await router.post("/v1/chat/completions", body, **bearer("a"))
            return answer.status == 429 and int(answer.headers["retry-after"]) > 100

        await until(refused, "3,000 tokens of 1,000 a minute are paid back for two minutes")


async def test_without_redis_tenants_are_served_and_counted(
    start_valkey: Any, tmp_path: Path
) -> None:
    server: RedisServer = start_valkey()
    file = key_file(tmp_path, a={"requests_per_minute": 1})
    async with (
        Replica(server.url, "r") as replica,
        guarded(server.url, file, replica) as router,
    ):
        server.stop()
        for _ in range(3):
            answer = await router.post("/v1/completions", completion(), **bearer("a"))
            assert answer.status == 200
        assert await router.metric("pando_router_rate_limits_unchecked_total") == 3


async def test_a_slow_redis_costs_a_limited_request_one_limit_of_time(
    start_valkey: Any, tmp_path: Path
) -> None:
    server: RedisServer = start_valkey(port=free_port())
    file = key_file(tmp_path, a={"requests_per_minute": 1000})
    placed = 'pando_router_placements_total{outcome="%s",policy="cache_aware"}'

    async def counts(router: RouterClient) -> list[float]:
        """Of placements by Redis, of those by the router alone, and of limits that nobody checked,
        after another request."""
        answer = await router.post("/v1/completions", completion(), **bearer("a"))
        assert answer.status == 200
        names = (placed % "shared", placed % "fallback", "pando_router_rate_limits_unchecked_total")
        return [await router.metric(name) for name in names]

    async with (
        Replica(server.url, "r") as replica,
        Front(server.port) as front,
        guarded(front.url, file, replica, placement_timeout=1.0) as router,
    ):
        assert await counts(router) == [1, 0, 0]
        front.delay_s = 0.6  # each of the two calls is answered in time, both together are not
        assert await counts(router) == [1, 1, 0]
        assert (await router.get("/healthz")).json["redis"] == "up"
        front.delay_s = 1.2
        assert await counts(router) == [1, 2, 1]
        await redis_is(router, "away")
        assert await counts(router) == [1, 3, 2]


async def test_an_open_router_asks_redis_for_no_limits_and_counts_no_tenants(
    valkey_url: str,
) -> None:
    async with fleet(valkey_url, "r") as (router, _):
        answer = await router.post("/v1/completions", completion())
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")]
        assert b"tenant=" not in (await router.get("/metrics")).body
