"""Placement of requests: cache, policies, leases, corrections, breaker, and several pools."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from pando_fleet.placement.prefix import CHUNK_BYTES, chunk_keys, completion_bytes, seed
from pando_fleet.placement.tree import PrefixTree
from pando_fleet.redis.client import connect
from pando_fleet.registry.replica import ReplicaState
from pando_router.core.promises import LIMIT
from pando_router.endpoints import ENDPOINTS
from tests.router.world import (
    Answer,
    Replica,
    Stream,
    cached,
    completion,
    fleet,
    serving,
    status,
    until,
)

LONG = "".join(f"{i:07d} " for i in range(4 * CHUNK_BYTES))  # 32 chunks
CHUNKS = len(LONG) // CHUNK_BYTES


async def test_second_request_of_a_prefix_follows_the_first(valkey_url: str) -> None:
    rates: dict[str, Any] = {"prefill_tokens_per_s": 1000.0, "capacity_tokens": 1_000_000}
    async with (
        Replica(valkey_url, "a", **rates),
        Replica(valkey_url, "b", **rates),
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        first = await router.post("/v1/completions", completion(LONG))
        again = await router.post("/v1/completions", completion(LONG + " and more"))
        assert again.replica == first.replica
        assert int(first.headers["x-pando-matched-tokens"]) == 0
        assert int(again.headers["x-pando-matched-tokens"]) == CHUNKS * CHUNK_BYTES / 4


@pytest.mark.parametrize("inputs", [LONG, [LONG, "another"]])
async def test_a_text_to_embed_goes_where_its_prefix_is_and_reserves_no_output(
    valkey_url: str, inputs: str | list[str]
) -> None:
    rates: dict[str, Any] = {"prefill_tokens_per_s": 1000.0, "capacity_tokens": 1_000_000}
    async with (
        Replica(valkey_url, "a", **rates),
        Replica(valkey_url, "b", **rates),
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        first = await router.post("/v1/completions", completion(LONG))
        again = await router.post("/v1/embeddings", {"model": "m", "input": inputs})
        assert again.replica == first.replica
        matched = int(again.headers["x-pando-matched-tokens"])  # never a prompt's last token
        assert matched in (len(LONG) / 4, len(LONG) / 4 - 1)
    request = ENDPOINTS["/v1/embeddings"].parse(
        json.dumps({"model": "m", "input": inputs}).encode()
    )
    assert request.output_tokens(256) == 0


async def test_path_is_cut_where_the_replica_has_less_again_and_again(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", capacity_tokens=1_000_000) as a,
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        redis = connect(valkey_url)
        tree = PrefixTree(redis, "default")
        keys = chunk_keys(completion_bytes(LONG), seed("m"))

        async def held() -> int:
            return await tree.match("a", a.heart.incarnation, keys)

        tokens = len(LONG) // 4
        a.answer = cached(0, tokens)
        await router.post("/v1/completions", completion(LONG))
        assert await held() == CHUNKS
        a.answer = cached(tokens - 16, tokens)  # a full hit except for the last page
        await router.post("/v1/completions", completion(LONG))
        assert await held() == CHUNKS
        a.answer = cached(tokens // 2, tokens)

        async def cut() -> bool:
            return await held() == CHUNKS // 2

        for _ in range(LIMIT - 1):
            await router.post("/v1/completions", completion(LONG))
            assert await held() == CHUNKS
        await router.post("/v1/completions", completion(LONG))
        await until(cut, "the path cut in the middle")
        await redis.aclose()
        pool = '{pool="default"}'
        assert await router.metric(f"pando_router_path_cuts_total{pool}") == 1
        assert await router.metric(f"pando_router_prompt_tokens_total{pool}") == (
            (2 + LIMIT) * tokens
        )
        delivered = await router.metric(f"pando_router_delivered_cached_tokens_total{pool}")
        assert delivered == tokens - 16 + LIMIT * (tokens // 2)
        predicted = await router.metric(f"pando_router_predicted_cached_tokens_total{pool}")
        assert predicted == (1 + LIMIT) * (tokens - 1)  # the last prompt token is always computed


async def test_request_that_fails_or_is_refused_leaves_the_tree_as_it_was(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", capacity_tokens=1_000_000) as a,
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        redis = connect(valkey_url)
        tree = PrefixTree(redis, "default")
        keys = chunk_keys(completion_bytes(LONG), seed("m"))
        half = LONG[: len(LONG) // 2]
        await router.post("/v1/completions", completion(half))
        for code in (400, 503):
            a.answer = status(code)

            async def as_before() -> bool:
                return await tree.match("a", a.heart.incarnation, keys) == CHUNKS // 2

            assert (await router.post("/v1/completions", completion(LONG))).status == code
            await until(as_before, f"only what was computed before the {code}")
        await redis.aclose()


async def test_first_byte_releases_the_prefill_and_the_end_the_rest(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = stream = Stream()

        async def terms() -> tuple[int, int]:
            answer = await router.post("/route/explain?path=/v1/completions", completion("x"))
            (candidate,) = answer.json["candidates"]
            return candidate["backlog_tokens"], candidate["outstanding"]

        request = asyncio.create_task(router.post("/v1/completions", completion(LONG)))
        await until(lambda: a.received, "the request at the replica")
        assert await terms() == (len(LONG) // 4, 1)
        stream.put(b"data: 1\n\n")

        async def prefilled() -> bool:
            return await terms() == (0, 1)

        await until(prefilled, "the prefill part released")
        stream.end()
        await request

        async def released() -> bool:
            return await terms() == (0, 0)

        await until(released, "all of the lease released")


async def test_a_request_that_outlasts_its_lease_keeps_its_place(valkey_url: str) -> None:
    stream = Stream()
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, lease_seconds=5) as router,
        Redis.from_url(valkey_url) as redis,
    ):
        await router.ready("a")
        a.answer = stream
        asking = asyncio.create_task(router.post("/v1/completions", completion(stream=True)))
        await stream.started.wait()

        async def ends_ms() -> float:
            ends: Any = await redis.zrange("pando:{default}:leases", 0, -1, withscores=True)
            ((_, end),) = ends  # it never disappears
            return float(end)

        first_end_ms = await ends_ms()

        async def was_renewed_twice() -> bool:
            return await ends_ms() > first_end_ms + 2_500  # renewed every 1.67 s

        await until(was_renewed_twice, "the lease being renewed")
        stream.end()
        assert (await asking).status == 200


async def test_round_robin_takes_turns(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", "c", policy="round_robin") as (router, _):
        order = [(await router.post("/v1/completions", completion())).replica for _ in range(6)]
        assert order == ["a", "b", "c", "a", "b", "c"]
        sample = 'pando_router_placements_total{outcome="shared",policy="round_robin"}'
        assert await router.metric(sample) == 6


async def test_random_reaches_everyone(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", policy="random") as (router, _):
        seen = {(await router.post("/v1/completions", completion())).replica for _ in range(40)}
        assert seen == {"a", "b"}


async def test_least_loaded_avoids_the_busy_replica(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", running=5) as a,
        Replica(valkey_url, "b") as b,
        serving(valkey_url, policy="least_loaded") as router,
    ):
        await router.ready("a", "b")
        a.answer = b.answer = stream = Stream("text/plain")

        def arrived(count: int) -> bool:
            return len(a.received) + len(b.received) == count

        running: list[asyncio.Task[Answer]] = []
        for sent in range(1, 11):
            running.append(asyncio.create_task(router.post("/generate", {"text": "x"})))
            await until(partial(arrived, sent), "the request at a replica")
        for _ in running:
            stream.end()
        replicas = [(await request).replica for request in running]
        assert replicas[:5] == ["b"] * 5
        assert replicas[5:].count("a") >= 4


async def test_requests_go_to_the_pool_of_their_model(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", model="x", pool="one"),
        Replica(valkey_url, "b", model="y", pool="two"),
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        for model, replica in (("x", "a"), ("y", "b")):
            answer = await router.post("/v1/completions", {"model": model, "prompt": "hi"})
            assert answer.replica == replica
        models = (await router.get("/v1/models")).json
        assert [model["id"] for model in models["data"]] == ["x", "y"]
        unnamed = await router.post("/generate", {"text": "hi"})
        assert (unnamed.status, unnamed.json["error"]["param"]) == (400, "model")


async def test_replica_of_another_model_in_the_pool_gets_no_request(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", model="x"),
        Replica(valkey_url, "b", model="y"),
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        for i in range(6):
            answer = await router.post("/v1/completions", {"model": "y", "prompt": f"{i}"})
            assert answer.replica == "b"


async def test_model_in_two_pools_is_served_by_the_one_that_is_ready(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", pool="one") as a,
        Replica(valkey_url, "b", pool="two") as b,
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        prompts = [f"{i} " * 200 for i in range(12)]
        homes = [(await router.post("/v1/completions", completion(p))).replica for p in prompts]
        assert set(homes) == {"a", "b"}
        again = [(await router.post("/v1/completions", completion(p))).replica for p in prompts]
        assert again == homes
        await a.say(state=ReplicaState.DRAINING)
        await router.ready("a", state="draining")
        moved = {(await router.post("/v1/completions", completion(p))).replica for p in prompts}
        assert moved == {"b"}
        await b.say(state=ReplicaState.DRAINING)
        await router.ready("b", state="draining")
        refused = await router.post("/v1/completions", completion())
        assert refused.status == 503
        assert refused.json["error"]["code"] == "no_ready_replica"
        assert refused.headers["retry-after"] == "1"


async def test_failing_replica_is_left_alone(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", policy="round_robin") as (router, [a, _]):
        a.answer = status(503)
        for _ in range(20):
            assert (await router.post("/v1/completions", completion())).replica == "b"
        rows = (await router.get("/fleet")).json["pools"]["default"]
        assert [row["breaker"] for row in rows] == ["open", "closed"]
        # Three failures open it; a probe a second later may be among the rest.
        assert 3 <= len(a.received) <= 4


async def test_lone_replica_is_tried_whatever_its_breaker_says(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = status(503)
        for _ in range(5):
            assert (await router.post("/v1/completions", completion())).status == 503
        a.answer = a.say_name
        assert (await router.post("/v1/completions", completion())).status == 200


async def test_explain_shows_every_candidate_and_places_nothing(valkey_url: str) -> None:
    rates: dict[str, Any] = {"prefill_tokens_per_s": 1000.0, "capacity_tokens": 1_000_000}
    async with (
        Replica(valkey_url, "a", **rates) as a,
        Replica(valkey_url, "b", **rates) as b,
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        home = (await router.post("/v1/completions", completion(LONG))).replica
        before = len(a.received) + len(b.received)

        async def explain() -> Any:
            path = "/route/explain?path=/v1/completions"
            return (await router.post(path, completion(LONG))).json

        async def released() -> bool:
            return all(c["outstanding"] == 0 for c in (await explain())["candidates"])

        await until(released, "the lease released")
        explained = await explain()
        assert explained["chosen"] == home
        assert home in explained["reason"]
        best, other = explained["candidates"]
        assert (best["matched_chunks"], other["matched_chunks"]) == (CHUNKS, 0)
        assert best["cost_s"] < other["cost_s"]
        assert other["work_s"] == pytest.approx(len(LONG) / 4 / 1000, rel=0.1)
        assert len(a.received) + len(b.received) == before
        again = await router.post("/route/explain?path=/v1/completions", completion(LONG))
        assert again.json["candidates"] == explained["candidates"]
