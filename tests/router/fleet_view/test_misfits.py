"""Impossible reports of a replica are skipped and counted, and do not affect others."""

import json

import msgspec
import pytest

from pando_fleet.redis.client import connect
from tests.router.world import Replica, completion, fleet, serving, status, until


@pytest.mark.parametrize(
    "wrong", [{"bytes_per_token": None}, {"state": "melted"}, {"adapters": 1}, {"model": None}]
)
async def test_one_heartbeat_that_does_not_fit_costs_the_others_nothing(
    valkey_url: str, wrong: dict[str, object]
) -> None:
    redis = connect(valkey_url)
    async with fleet(valkey_url, "a") as (router, _), Replica(valkey_url, "b") as b:
        await router.ready("a", "b")
        b.pause()
        beat = json.loads(msgspec.json.encode(b.heart)) | wrong
        await redis.hset("pando:{default}:beats", "b", json.dumps(beat))
        sample = 'pando_router_misfits_total{kind="heartbeat"}'
        before = await router.metric(sample)

        async def counted() -> bool:
            return await router.metric(sample) > before

        await until(counted, "the heartbeat being counted")
        async with serving(valkey_url) as newer:
            await newer.ready("a")
            for one in (router, newer):
                assert (await one.get("/healthz")).status == 200
                assert (await one.post("/v1/completions", completion())).status == 200
    await redis.aclose()


@pytest.mark.parametrize(
    ("cached", "prompt"), [("9" * 5000, "9" * 5000), ("-1", "10"), ("11", "10"), ("ten", "10")]
)
async def test_a_count_of_cached_tokens_that_cannot_be_is_skipped(
    valkey_url: str, cached: str, prompt: str
) -> None:
    headers = {"x-pando-cached-tokens": cached, "x-pando-prompt-tokens": prompt}
    async with fleet(valkey_url, "a") as (router, [a]):
        sample = 'pando_router_misfits_total{kind="header"}'
        before = await router.metric(sample)
        a.answer = status(200, **headers)
        answer = await router.post("/v1/completions", completion())
        assert answer.status == 200
        assert await router.metric(sample) == before + 1
        assert await router.metric('pando_router_prompt_tokens_total{pool="default"}') == 0
