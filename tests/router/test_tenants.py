"""API keys at a real router with real Redis: who gets in, what they reach, what replicas see."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import yaml

from pando_fleet.client import connect
from pando_router.tenants.keyring import digest_of
from tests.fleet.redis_server import RedisServer
from tests.router.world import (
    Replica,
    RouterClient,
    Stream,
    cached,
    chat,
    completion,
    serving,
    status,
    until,
)

ADMIN = "sk-pando-admin"
PROMPT = "x" * 4096  # 16 chunks


def key_file(folder: Path, **tenants: dict[str, Any]) -> Path:
    """A file in which each tenant has the key of their name, and `admin` ADMIN."""
    file = folder / "keys.yaml"
    given: dict[str, Any] = {"admin": {"keys": [{"sha256": digest_of(ADMIN)}], "admin": True}}
    for name, fields in tenants.items():
        given[name] = {"keys": [{"sha256": digest_of(name)}], **fields}
    file.write_text(yaml.safe_dump({"tenants": given}))
    return file


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@asynccontextmanager
async def guarded(
    redis_url: str, file: Path, *replicas: Replica, **settings: Any
) -> AsyncIterator[RouterClient]:
    async with serving(redis_url, key=ADMIN, api_keys=file, **settings) as router:
        await router.ready(*(replica.name for replica in replicas))
        yield router


# Who gets in


@pytest.mark.parametrize(
    "headers", [bearer("a"), {"x-api-key": "a"}, {"Authorization": "bearer  a"}]
)
async def test_a_known_key_is_served(
    valkey_url: str, tmp_path: Path, headers: dict[str, str]
) -> None:
    async with (
        Replica(valkey_url, "r") as replica,
        guarded(valkey_url, key_file(tmp_path, a={}), replica) as router,
    ):
        assert (await router.post("/v1/completions", completion(), **headers)).status == 200


@pytest.mark.parametrize("path", ["/v1/completions", "/fleet", "/v1/models", "/nothing"])
@pytest.mark.parametrize(
    ("header", "code"), [("", None), ("Basic YTph", None), ("Bearer b", "invalid_api_key")]
)
async def test_no_key_and_a_wrong_one_get_401(
    valkey_url: str, tmp_path: Path, path: str, header: str, code: str | None
) -> None:
    async with (
        Replica(valkey_url, "r") as replica,
        guarded(valkey_url, key_file(tmp_path, a={}), replica) as router,
    ):
        answer = await router.post(path, completion(), authorization=header)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        error = answer.json["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", code)
        assert not replica.received


async def test_the_official_clients_get_in_and_see_their_errors(
    valkey_url: str, tmp_path: Path
) -> None:
    async with (
        Replica(valkey_url, "r") as replica,
        guarded(valkey_url, key_file(tmp_path, a={"requests_per_minute": 1}), replica) as router,
    ):
        theirs = {"base_url": f"{router.url}/v1", "max_retries": 0}
        async with openai.AsyncOpenAI(api_key="wrong", **theirs) as client:  # type: ignore[arg-type]
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
        async with openai.AsyncOpenAI(api_key="a", **theirs) as client:  # type: ignore[arg-type]
            assert [model.id async for model in client.models.list()] == ["m"]
            await client.completions.create(model="m", prompt="hi")
            with pytest.raises(openai.RateLimitError) as raised:
                await client.completions.create(model="m", prompt="hi")
            assert raised.value.code == "rate_limit_exceeded"


async def test_anthropics_client_gets_in_with_its_header_and_sees_its_own_errors(
    valkey_url: str, tmp_path: Path
) -> None:
    ask: Any = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    async with (
        Replica(valkey_url, "r", endpoints=("/v1/messages",)) as replica,
        guarded(valkey_url, key_file(tmp_path, a={}), replica) as router,
    ):
        async with anthropic.AsyncAnthropic(api_key="a", base_url=router.url) as client:
            await client.messages.create(**ask)
        (received,) = replica.received
        assert "x-api-key" not in received.headers
        async with anthropic.AsyncAnthropic(
            api_key="wrong", base_url=router.url, max_retries=0
        ) as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.messages.create(**ask)


async def test_an_expired_key_gets_401(valkey_url: str, tmp_path: Path) -> None:
    key = {"sha256": digest_of("a"), "expires": datetime(2020, 1, 1, tzinfo=UTC)}
    file = key_file(tmp_path, a={"keys": [key]})
    async with Replica(valkey_url, "r") as replica, guarded(valkey_url, file, replica) as router:
        answer = await router.post("/v1/completions", completion(), **bearer("a"))
        assert (answer.status, "expired" in answer.json["error"]["message"]) == (401, True)
        assert await router.metric('pando_router_refused_api_keys_total{reason="expired"}') == 1


async def test_a_new_key_file_counts_without_a_restart(valkey_url: str, tmp_path: Path) -> None:
    async with (
        Replica(valkey_url, "r") as replica,
        guarded(valkey_url, key_file(tmp_path, a={}), replica) as router,
    ):
        key_file(tmp_path, bcd={})

        async def known() -> bool:
            return (
                await router.post("/v1/completions", completion(), **bearer("bcd"))
            ).status == 200

        await until(known, "the new key is known")
        assert (await router.post("/v1/completions", completion(), **bearer("a"))).status == 401


async def test_only_admins_see_what_concerns_all(valkey_url: str, tmp_path: Path) -> None:
    async with (
        Replica(valkey_url, "r") as replica,
        guarded(valkey_url, key_file(tmp_path, a={}), replica) as router,
    ):
        statuses = {
            path: [
                (await router.request(method, path, headers=bearer(key), json=completion())).status
                for key in ("", "a", ADMIN)
            ]
            for method, path in (
                ("GET", "/fleet"),
                ("POST", "/route/explain?path=/v1/completions"),
                ("GET", "/v1/models"),
                ("GET", "/docs"),
                ("GET", "/metrics"),
                ("GET", "/healthz"),
                ("GET", "/readyz"),
            )
        }
        assert statuses == {
            "/fleet": [401, 403, 200],
            "/route/explain?path=/v1/completions": [401, 403, 200],
            "/v1/models": [401, 200, 200],
            "/docs": [401, 403, 404],
            "/metrics": [200, 200, 200],
            "/healthz": [200, 200, 200],
            "/readyz": [200, 200, 200],
        }


async def test_only_admins_have_all_candidates_remembered(valkey_url: str, tmp_path: Path) -> None:
    async with (
        Replica(valkey_url, "r") as replica,
        guarded(valkey_url, key_file(tmp_path, a={}), replica) as router,
    ):
        for key, wish, expected in (
            ("a", "true", 403),
            ("a", "false", 200),
            (ADMIN, "true", 200),
        ):
            headers = bearer(key) | {"x-pando-explain": wish}
            answer = await router.post("/v1/completions", completion(), **headers)
            assert answer.status == expected


async def test_metrics_may_want_a_key(valkey_url: str, tmp_path: Path) -> None:
    async with serving(valkey_url, api_keys=key_file(tmp_path), metrics_need_key=True) as router:
        answers = [
            await router.request("GET", "/metrics", headers=bearer(key)) for key in ("", ADMIN)
        ]
        assert [answer.status for answer in answers] == [401, 200]


async def test_a_model_that_a_tenant_may_not_use_does_not_exist_for_them(
    valkey_url: str, tmp_path: Path
) -> None:
    file = key_file(tmp_path, a={"models": ["m", "other"]}, b={"models": ["m"]})
    async with (
        Replica(valkey_url, "r") as replica,
        Replica(valkey_url, "s", pool="two", model="other") as second,
        guarded(valkey_url, file, replica, second) as router,
    ):
        for key, model, expected in (
            ("a", "m", 200), ("a", "other", 200), ("b", "m", 200), ("b", "other", 404)
        ):  # fmt: skip
            answer = await router.post("/v1/completions", completion(model=model), **bearer(key))
            assert answer.status == expected
        error = answer.json["error"]
        assert error["code"] == "model_not_found" and error["message"].endswith("there is 'm'")
        listed = await router.request("GET", "/v1/models", headers=bearer("b"))
        assert [card["id"] for card in listed.json["data"]] == ["m"]
        one = await router.request("GET", "/v1/models/other", headers=bearer("b"))
        assert one.status == 404


# What replicas, logs and metrics see


async def test_a_key_reaches_neither_replica_nor_log_nor_metrics(
    valkey_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = key_file(tmp_path, **{"very-secret": {}})
    async with Replica(valkey_url, "r") as replica, guarded(valkey_url, file, replica) as router:
        for headers in (bearer("very-secret"), {"x-api-key": "very-secret"}):
            await router.request(
                "POST",
                "/v1/completions",
                headers={"authorization": ""} | headers,
                json=completion(),
            )
        await router.post("/v1/completions", completion(), **bearer("not-so-secret"))
        assert len(replica.received) == 2
        for received in replica.received:
            assert not {"authorization", "x-api-key"} & received.headers.keys()
        assert digest_of("very-secret") not in caplog.text
        assert "not-so-secret" not in caplog.text
        metrics = (await router.get("/metrics")).body.decode()
        assert "not-so-secret" not in metrics and digest_of("very-secret") not in metrics


async def test_without_a_key_file_the_clients_key_is_the_replicas_to_check(valkey_url: str) -> None:
    async with Replica(valkey_url, "r") as replica, serving(valkey_url) as router:
        await router.ready("r")
        await router.post("/v1/completions", completion(), **bearer("a"))
        assert replica.received[0].headers["authorization"] == "Bearer a"


@pytest.mark.parametrize("keys", [True, False])
async def test_replicas_can_have_a_key_of_their_own(
    valkey_url: str, tmp_path: Path, keys: bool
) -> None:
    settings = {"api_keys": key_file(tmp_path)} if keys else {}
    async with (
        Replica(valkey_url, "r") as replica,
        serving(valkey_url, key=ADMIN, upstream_api_key="upstream", **settings) as router,
    ):
        await router.ready("r")
        await router.post("/v1/completions", completion())
        assert replica.received[0].headers["authorization"] == "Bearer upstream"


# Salts


async def test_no_prefix_is_shared_across_the_border_of_a_salt(
    valkey_url: str, tmp_path: Path
) -> None:
    file = key_file(tmp_path, a={"isolate": True}, b={"isolate": True}, c={}, d={})
    async with Replica(valkey_url, "r") as replica, guarded(valkey_url, file, replica) as router:

        async def matched(key: str, **fields: str) -> int:
            body = completion(PROMPT, **fields)
            answer = await router.post("/v1/completions", body, **bearer(key))
            assert answer.status == 200
            return int(answer.headers["x-pando-matched-tokens"])

        first = [await matched("a"), await matched("b"), await matched("c")]
        salted = [await matched("a", cache_salt="s"), await matched("c", cache_salt="s")]
        imitated = [await matched("c", cache_salt="a")]
        assert first + salted + imitated == [0] * 6
        again = [await matched("a"), await matched("b"), await matched("d")]
        again += [await matched("a", cache_salt="s"), await matched("d", cache_salt="s")]
        assert all(tokens > 500 for tokens in again)


async def test_the_replica_is_told_whose_name_space_it_is_and_a_client_cannot_say_it(
    valkey_url: str, tmp_path: Path
) -> None:
    file = key_file(tmp_path, a={"isolate": True}, c={})
    async with Replica(valkey_url, "r") as replica, guarded(valkey_url, file, replica) as router:
        for key in ("a", "c"):
            for headers in ({}, {"x-pando-cache-salt": "a"}, {"X-Pando-Cache-Salt": "b"}):
                await router.post("/v1/completions", completion(), **bearer(key), **headers)
        told = [received.headers.get("x-pando-cache-salt") for received in replica.received]
        assert told == ["a", "a", "a", None, None, None]
    async with Replica(valkey_url, "r") as replica, serving(valkey_url) as router:
        await router.ready("r")
        await router.post("/v1/completions", completion(), **{"x-pando-cache-salt": "a"})
        assert "x-pando-cache-salt" not in replica.received[0].headers


async def test_a_tenant_with_a_share_of_the_tree_drives_out_nobody_else(
    valkey_url: str, tmp_path: Path
) -> None:
    file = key_file(tmp_path, a={"isolate": True, "share": 0.25}, c={})
    tree: dict[str, Any] = {"capacity_tokens": 4096, "bytes_per_token": 4.0}  # 64 chunks
    async with (
        Replica(valkey_url, "r", **tree) as replica,
        guarded(valkey_url, file, replica) as router,
    ):

        async def matched(key: str, letter: str) -> int:
            body = completion(letter * 4096)  # 16 chunks
            answer = await router.post("/v1/completions", body, **bearer(key))
            return int(answer.headers["x-pando-matched-tokens"])

        async def known(key: str, letter: str) -> bool:
            return await matched(key, letter) > 500

        await until(lambda: known("c", "c"), "the prompt of c is in the tree")
        for letter in "defghijk":  # twice the tree
            await until(lambda: known("a", letter), "the prompt of a is in the tree")  # noqa: B023
        assert await matched("c", "c") > 500
        assert await matched("a", "d") == 0


# Rate limits


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
    """Tokens in a bucket, by what Redis holds."""
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
        await until(lambda: replica.cancelled, "the replica is told")
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


async def test_an_open_router_asks_redis_for_no_limits_and_counts_no_tenants(
    valkey_url: str,
) -> None:
    async with Replica(valkey_url, "r"), serving(valkey_url) as router:
        await router.ready("r")
        answer = await router.post("/v1/completions", completion())
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")]
        assert b"tenant=" not in (await router.get("/metrics")).body
