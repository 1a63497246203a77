"""Explains why a request went to its replica, and why so little of it was cached."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from pando_fleet.registry.replica import ReplicaState
from tests.router.configuration.reloading import reloading
from tests.router.world import (
    Answer,
    Replica,
    RouterClient,
    Stream,
    cached,
    completion,
    fleet,
    serving,
    until,
)

RATES: dict[str, Any] = {"prefill_tokens_per_s": 1_000.0, "capacity_tokens": 1_000_000}
LONG = "".join(f"{i:07d} " for i in range(512))  # 16 chunks
TOKENS = len(LONG) // 4


async def ask(router: RouterClient, prompt: str, **options: Any) -> Answer:
    return await router.post("/v1/completions", completion(prompt), **options)


async def why(router: RouterClient, answer: Answer) -> Any:
    """The last try of an answered request."""
    path = f"/route/explain?request_id={answer.headers['x-request-id']}"
    return (await router.get(path)).json["tries"][0]


async def test_past_request_is_explained_with_what_was_predicted_and_delivered(
    valkey_url: str,
) -> None:
    async with Replica(valkey_url, "a", **RATES) as a, serving(valkey_url) as router:
        await router.ready("a")
        first = await why(router, await ask(router, LONG))
        assert (first["hit"], first["predicted_tokens"]) == ("never_seen", 0)
        assert (first["chosen"], first["pool"], first["policy"]) == ("a", "default", "cache_aware")
        assert first["reason"].startswith("a: 0 tokens cached, nobody waits: ")
        a.answer = cached(TOKENS - 16, TOKENS)
        again = await why(router, await ask(router, LONG))
        assert (again["hit"], again["cached_tokens"]) == ("cached", TOKENS - 16)
        assert (again["status"], again["prompt_tokens"]) == (200, TOKENS)
        a.answer = cached(TOKENS // 4, TOKENS)
        evicted = await why(router, await ask(router, LONG))
        assert evicted["hit"] == "lost"
        assert str(TOKENS // 4) in evicted["hit_reason"]


async def test_prompt_shorter_than_a_chunk_is_said_to_be_that(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, _):
        assert (await why(router, await ask(router, "short")))["hit"] == "too_short"


async def test_salted_prompt_is_distinguished_from_a_new_one(valkey_url: str) -> None:
    async with Replica(valkey_url, "a", **RATES), serving(valkey_url) as router:
        await router.ready("a")
        await ask(router, LONG)
        answer = await router.post("/v1/completions", completion(LONG, cache_salt="mine"))
        assert (await why(router, answer))["hit"] == "salted"


async def test_prefix_left_with_a_busy_replica_is_named(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", **RATES) as a,
        Replica(valkey_url, "b", **RATES) as b,
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        home = (await ask(router, LONG)).replica
        busy, idle = (a, b) if home == "a" else (b, a)

        async def pinned() -> bool:
            path = "/route/explain?path=/v1/completions"
            candidates = (await router.post(path, completion(LONG))).json["candidates"]
            return any(c["kv_wait_s"] > 0 for c in candidates)

        await busy.say(pinned_tokens=1_000_000)
        await until(pinned, "no KV space where the prefix is")
        answer = await ask(router, LONG, **{"x-pando-explain": "true"})
        explained = await why(router, answer)
        assert answer.replica == explained["chosen"] == idle.name
        assert explained["hit"] == "elsewhere"
        assert f"{busy.name} held 16 chunks" in explained["hit_reason"]
        best, other = explained["candidates"]
        assert (best["replica"], other["replica"]) == (idle.name, busy.name)
        assert (other["unpinned_tokens"], best["unpinned_tokens"]) == (0, 1_000_000)
        assert other["kv_wait_s"] > best["work_s"] > other["work_s"]


async def test_prefix_left_with_a_replica_that_has_all_its_requests_is_named(
    valkey_url: str,
) -> None:
    async with (
        Replica(valkey_url, "a", **RATES) as a,
        Replica(valkey_url, "b", **RATES) as b,
        serving(valkey_url, max_replica_requests=1) as router,
    ):
        await router.ready("a", "b")
        home = (await ask(router, LONG)).replica
        full, other = (a, b) if home == "a" else (b, a)
        full.answer = stream = Stream()
        running = asyncio.create_task(ask(router, LONG))
        await stream.started.wait()
        path = "/route/explain?path=/v1/completions"
        would = (await router.post(path, completion(LONG))).json
        assert would["chosen"] == other.name
        said = [(c["replica"], c["full"], c["matched_chunks"]) for c in would["candidates"]]
        assert said == [(other.name, False, 0), (full.name, True, 16)]
        answer = await ask(router, LONG)
        explained = await why(router, answer)
        assert answer.replica == explained["chosen"] == other.name
        assert explained["hit"] == "elsewhere"
        assert f"{full.name} held 16 chunks" in explained["hit_reason"]
        assert "the holder was full" in explained["hit_reason"]
        stream.end()
        await running


async def test_a_prompt_that_would_wait_is_said_to(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", **RATES) as a,
        serving(valkey_url, max_replica_requests=1) as router,
    ):
        await router.ready("a")
        a.answer = stream = Stream()
        running = asyncio.create_task(ask(router, LONG))
        await stream.started.wait()
        would = (await router.post("/route/explain?path=/v1/completions", completion(LONG))).json
        assert would["chosen"] is None
        assert [(c["replica"], c["full"]) for c in would["candidates"]] == [("a", True)]
        assert "wait in the queue" in would["reason"]
        stream.end()
        await running


async def test_every_try_of_a_request_is_explained(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", policy="round_robin") as (router, [a, _]):
        await a.refuse()
        answer = await ask(router, LONG)
        path = f"/route/explain?request_id={answer.headers['x-request-id']}"
        tries = (await router.get(path)).json["tries"]
        assert [one["chosen"] for one in tries] == ["b", "a"]
        assert tries[0]["status"] == 200
        assert "policy round_robin chose b" in tries[0]["reason"]


async def test_a_past_request_is_explained_by_the_policy_that_placed_it(
    valkey_url: str, tmp_path: Path
) -> None:
    async with (
        Replica(valkey_url, "a"),
        reloading(valkey_url, tmp_path / "router.yaml", policy="round_robin") as world,
    ):
        await world.router.ready("a")
        answer = await ask(world.router, LONG)
        await world.write(policy="cache_aware")
        explained = await why(world.router, answer)
        assert explained["policy"] == "round_robin"
        assert "policy round_robin chose a" in explained["reason"]


async def test_only_the_last_requests_are_remembered(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", explain_last=2) as (router, _):
        answers = [await ask(router, f"{i}") for i in range(3)]
        paths = [f"/route/explain?request_id={a.headers['x-request-id']}" for a in answers]
        assert [(await router.get(path)).status for path in paths] == [404, 200, 200]


async def test_request_placed_without_redis_is_explained_as_such(valkey_url: str) -> None:
    async with Replica(valkey_url, "a", capacity_tokens=1_000) as a, serving(valkey_url) as router:
        await router.ready("a")
        a.pause()
        await a.say(state=ReplicaState.STARTING)  # in Redis; the router has not read it yet
        answer = await ask(router, LONG)
        if answer.status == 200:  # unless it has
            explained = await why(router, answer)
            assert explained["hit"] == "unknown"
            assert explained["reason"].startswith("chosen without Redis")
            assert explained["reason"].endswith(": a")


@pytest.mark.parametrize("policy", ["prefix_hash", "session"])
async def test_explain_names_the_replica_of_a_policy_that_leaves_no_trace(
    valkey_url: str, policy: str
) -> None:
    async with (
        Replica(valkey_url, "a", **RATES),
        Replica(valkey_url, "b", **RATES),
        serving(valkey_url, policy=policy) as router,
    ):
        await router.ready("a", "b")
        for number in range(8):
            body = completion(f"{number}" * 300, user=f"{number}")
            explained = (await router.post("/route/explain?path=/v1/completions", body)).json
            answer = await router.post("/v1/completions", body)
            assert explained["chosen"] == answer.replica
            assert policy in explained["reason"]


async def test_debug_log_has_the_reason_of_each_choice_and_no_prompt(
    valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Replica(valkey_url, "a", **RATES),
        Replica(valkey_url, "b", **RATES),
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        with caplog.at_level(logging.DEBUG, "pando.router"):
            answer = await ask(router, "secret words " * 100)
        (record,) = [record for record in caplog.records if record.message == "placed"]
        said = vars(record)
        assert said["request_id"] == answer.headers["x-request-id"]
        assert said["reason"].startswith(f"{answer.replica}: 0 tokens cached, nobody waits: ")
        assert {candidate["replica"] for candidate in said["candidates"]} == {"a", "b"}
        assert "secret" not in str(said)
