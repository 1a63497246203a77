"""Adapters loaded and unloaded at all replicas of a pool, through one router."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pando_fleet.registry.replica import ReplicaState
from tests.router.tenants.tenants_world import ADMIN, bearer, guarded, key_file
from tests.router.world import Replica, fleet, never, reset, serving, status
from tests.waiting import PATIENCE_S

LOAD = {"lora_name": "pirate", "lora_path": "/adapters/pirate"}


async def success(request: web.Request) -> web.StreamResponse:
    name = (await request.json())["lora_name"]
    return web.json_response(f"Success: LoRA adapter '{name}' added successfully.")


@pytest.mark.parametrize("path", ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"])
async def test_a_change_reaches_all_replicas_of_the_pool_at_once_and_no_other(
    valkey_url: str, path: str
) -> None:
    barrier = asyncio.Barrier(2)

    async def together(request: web.Request) -> web.StreamResponse:
        async with asyncio.timeout(PATIENCE_S):
            await barrier.wait()  # each waits for the other, so they run at the same time
        return await success(request)

    async with (
        fleet(valkey_url, "a", "b") as (router, [a, b]),
        Replica(valkey_url, "else", pool="other") as other,
    ):
        await router.ready("else")
        a.answer = b.answer = together
        fields = LOAD | {"load_inplace": True, "pin": True}
        answer = await router.post(path, fields | {"pool": "default"})
        assert answer.status == 200
        done = "Success: LoRA adapter 'pirate' added successfully."
        assert answer.json == {
            "lora_name": "pirate",
            "pool": "default",
            "replicas": [{"replica": name, "status": 200, "message": done} for name in ("a", "b")],
        }
        for replica in (a, b):
            [received] = replica.received
            assert (received.path, json.loads(received.body)) == (path, fields)
        assert not other.received


async def test_each_replicas_failure_is_told_apart(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", "c", "d") as (router, [a, b, c, d]):
        a.answer, b.answer, c.answer, d.answer = success, status(400), reset, never
        headers = {"x-request-timeout-ms": "1500"}
        answer = await router.post("/v1/load_lora_adapter", LOAD, **headers)
        assert answer.status == 502
        statuses = {one["replica"]: one["status"] for one in answer.json["replicas"]}
        assert statuses == {"a": 200, "b": 400, "c": 502, "d": 504}
        error = answer.json["error"]
        assert (error["type"], error["code"]) == ("upstream_error", "adapter_change_failed")
        assert "3 of 4 replicas" in error["message"]


async def test_what_all_replicas_refuse_has_their_status_and_reason(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b") as (router, [a, b]):
        a.answer = b.answer = status(404)
        answer = await router.post("/v1/unload_lora_adapter", {"lora_name": "nobody"})
        assert (answer.status, answer.json["error"]["type"]) == (404, "invalid_request_error")
        assert answer.json["replicas"][0]["message"] == "404"


async def test_draining_replicas_are_left_alone(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b") as (router, [a, b]):
        a.answer = b.answer = success
        await b.say(state=ReplicaState.DRAINING)
        await router.ready("b", state="draining")
        answer = await router.post("/v1/load_lora_adapter", LOAD)
        assert [one["replica"] for one in answer.json["replicas"]] == ["a"]
        assert not b.received


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"{", 400, "must name an adapter in lora_name"),
        ({"lora_path": "/x"}, 400, "must name an adapter in lora_name"),
        (LOAD | {"pool": "nowhere"}, 404, "pool 'nowhere' does not exist; there is default, two"),
        (LOAD, 400, "must name a pool, one of default, two"),
    ],
)
async def test_wrong_requests_reach_no_replica(
    valkey_url: str, body: Any, code: int, words: str
) -> None:
    async with (
        fleet(valkey_url, "a") as (router, [a]),
        Replica(valkey_url, "b", pool="two") as b,
    ):
        await router.ready("b")
        answer = await router.post("/v1/load_lora_adapter", body)
        assert (answer.status, words in answer.json["error"]["message"]) == (code, True)
        assert not a.received and not b.received


async def test_without_any_replica_it_is_unavailable(valkey_url: str) -> None:
    async with serving(valkey_url) as router:
        assert (await router.post("/v1/load_lora_adapter", LOAD)).status == 503


async def test_only_admins_may_and_their_key_stays_with_the_router(
    valkey_url: str, tmp_path: Path
) -> None:
    keys = key_file(tmp_path, team={})
    async with (
        Replica(valkey_url, "a") as a,
        guarded(valkey_url, keys, a, upstream_api_key="of-the-worker") as router,
    ):
        a.answer = success
        for headers, code in ((bearer("team"), 403), (bearer("nobody"), 401)):
            assert (await router.post("/v1/load_lora_adapter", LOAD, **headers)).status == code
        assert not a.received
        assert (await router.post("/v1/load_lora_adapter", LOAD, **bearer(ADMIN))).status == 200
        assert a.received[0].headers["authorization"] == "Bearer of-the-worker"


async def test_a_router_without_keys_leaves_the_check_to_the_workers(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = success
        await router.post("/v1/load_lora_adapter", LOAD, **bearer("of-the-client"))
        assert a.received[0].headers["authorization"] == "Bearer of-the-client"


async def test_each_replica_gets_the_token_of_its_own_heartbeat(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", admin_token="of-a") as a,
        Replica(valkey_url, "b") as b,
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        a.answer = b.answer = success
        clients = "Bearer of-the-client"
        answer = await router.post("/v1/load_lora_adapter", LOAD, authorization=clients)
        assert answer.status == 200
        keys = [replica.received[0].headers["authorization"] for replica in (a, b)]
        assert keys == ["Bearer of-a", clients]
        assert b"of-a" not in (await router.get("/fleet")).body
