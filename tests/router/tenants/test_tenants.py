"""API keys with a real router and a real Redis: access, its limits, and what replicas see."""

import logging
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openai
import pytest

from pando_router.api_keys.keyring import digest_of
from pando_router.tenants.guard import OPEN_PATHS
from tests.router.http.http_world import Raw
from tests.router.tenants.tenants_world import ADMIN, PROMPT, bearer, guarded, key_file
from tests.router.world import Replica, completion, fleet, serving, until


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


def test_the_page_names_each_path_that_needs_no_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "api-keys.md").read_text()
    (row,) = [line for line in page.splitlines() if "`/healthz`" in line]
    assert set(re.findall(r"`(/.*?)`", row)) == OPEN_PATHS and row.endswith("| none |")


async def test_only_these_paths_answer_without_a_key(valkey_url: str, tmp_path: Path) -> None:
    async with (
        Replica(valkey_url, "r") as replica,
        guarded(valkey_url, key_file(tmp_path, a={}), replica) as router,
    ):
        described = (await router.get("/openapi.json")).json["paths"]
        without_key = {"headers": {"authorization": ""}}
        methods = dict.fromkeys(OPEN_PATHS, "get") | {
            path: min(of) for path, of in described.items()
        }
        statuses = {
            path: (await router.request(method, path, **without_key)).status
            for path, method in methods.items()
        }
        open_paths = {path for path, status in statuses.items() if status == 200}
        assert open_paths == OPEN_PATHS | {"/metrics"}
        assert {statuses[path] for path in statuses.keys() - open_paths} == {401}


@pytest.mark.parametrize(
    "path", ["/route/explain", "/v1/completions", "/v1/responses/a/cancel", "/healthz"]
)
async def test_without_a_key_no_body_is_waited_for(
    valkey_url: str, tmp_path: Path, path: str
) -> None:
    async with (
        Replica(valkey_url, "r") as replica,
        guarded(valkey_url, key_file(tmp_path, a={}), replica) as router,
        Raw(int(router.url.rpartition(":")[2])) as client,
    ):
        client.send(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{" % path.encode())
        answer = await client.answer()
        assert answer.status == 401
        assert answer.headers["x-request-id"]


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
    valkey_url: str, tmp_path: Path, anthropic: Any
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
                ("POST", "/chat/completions"),
                ("GET", "/models"),
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
            "/chat/completions": [401, 404, 404],  # it lacks /v1, as the answer says
            "/models": [401, 404, 404],
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
    async with fleet(valkey_url, "r") as (router, [replica]):
        await router.post("/v1/completions", completion(), **bearer("a"))
        assert replica.received[0].headers["authorization"] == "Bearer a"


@pytest.mark.parametrize("keys", [True, False])
async def test_replicas_can_have_a_key_of_their_own(
    valkey_url: str, tmp_path: Path, keys: bool
) -> None:
    settings = {"api_keys": key_file(tmp_path)} if keys else {}
    async with fleet(valkey_url, "r", key=ADMIN, upstream_api_key="upstream", **settings) as (
        router,
        [replica],
    ):
        await router.post("/v1/completions", completion())
        assert replica.received[0].headers["authorization"] == "Bearer upstream"


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


async def test_the_router_and_not_the_client_names_tenant_and_namespace_to_the_replica(
    valkey_url: str, tmp_path: Path
) -> None:
    file = key_file(tmp_path, a={"isolate": True}, c={})
    async with Replica(valkey_url, "r") as replica, guarded(valkey_url, file, replica) as router:
        for key in ("a", "c"):
            for headers in (
                {},
                {"x-pando-cache-salt": "a", "x-pando-tenant": "a"},
                {"X-Pando-Cache-Salt": "b", "X-Pando-Tenant": "b", "x-pando-token-ids": "1"},
            ):
                await router.post("/v1/completions", completion(), **bearer(key), **headers)
        told = [received.headers.get("x-pando-cache-salt") for received in replica.received]
        assert told == ["a", "a", "a", None, None, None]
        tenants = [received.headers.get("x-pando-tenant") for received in replica.received]
        assert tenants == ["a", "a", "a", "c", "c", "c"]
        assert not any("x-pando-token-ids" in received.headers for received in replica.received)
    async with fleet(valkey_url, "s") as (router, [replica]):
        own = {"x-pando-cache-salt": "a", "x-pando-tenant": "a", "x-pando-token-ids": "1"}
        await router.post("/v1/completions", completion(), **own)
        assert not own.keys() & replica.received[0].headers.keys()


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


async def test_a_key_may_be_good_for_an_adapter_and_not_for_its_base(
    valkey_url: str, tmp_path: Path
) -> None:
    keys = key_file(tmp_path, team={"models": ["pirate"]})
    async with (
        Replica(valkey_url, "r", adapters=("pirate", "poet")) as replica,
        guarded(valkey_url, keys, replica) as router,
    ):
        asked = {
            model: await router.post("/v1/completions", completion(model=model), **bearer("team"))
            for model in ("pirate", "poet", "m")
        }
        assert {model: answer.status for model, answer in asked.items()} == {
            "pirate": 200, "poet": 404, "m": 404,
        }  # fmt: skip
        listed = await router.request("GET", "/v1/models", headers=bearer("team"))
        assert [card["id"] for card in listed.json["data"]] == ["pirate"]
