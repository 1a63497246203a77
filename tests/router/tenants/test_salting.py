"""Tenants with `isolate` and engines that read namespaces only from a request's body."""

import json
from pathlib import Path
from typing import Any

import pytest

from pando_fleet.placement.prefix import KEY_BYTES
from pando_router.api_keys.key_file import read_keys
from pando_router.api_keys.tenant import Tenant
from pando_router.configuration.live import Live
from pando_router.configuration.settings import RouterSettings
from pando_router.tenants.forwarding import Forwarding
from pando_router.tenants.salting import Salting
from pando_router.warming.prefiller import Prefiller
from pando_router.warming.prefixes import HotPrefix, SentRequest
from tests.router.http.http_world import upstream
from tests.router.tenants.tenants_world import ADMIN, bearer, key_file
from tests.router.upstreams.foreign_engines import Engine, LlamaCpp, Sglang, Vllm
from tests.router.world import RouterClient, chat, completion, serving

PROMPT = "a shared beginning " * 50
QUICK: dict[str, Any] = {"upstream_interval": 0.1}


async def cached(router: RouterClient, key: str, **fields: Any) -> int:
    """Cached tokens as the engine reports them."""
    answer = await router.post("/v1/completions", completion(PROMPT, **fields), **bearer(key))
    assert answer.status == 200, answer.body
    return int(answer.json["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize("engine", [Vllm(), Sglang()], ids=lambda engine: engine.owner)
async def test_no_cache_is_shared_across_an_isolated_tenants_border(
    valkey_url: str, tmp_path: Path, engine: Engine
) -> None:
    file = key_file(tmp_path, a={"isolate": True}, b={"isolate": True}, c={}, d={})
    async with (
        engine,
        serving(valkey_url, key=ADMIN, api_keys=file, upstream=engine.url, **QUICK) as router,
    ):
        await router.ready(engine.name)
        assert not await cached(router, "a")
        assert await cached(router, "a")
        assert not await cached(router, "b")
        assert not await cached(router, "c")
        assert await cached(router, "d")
        assert not await cached(router, "a", cache_salt="mine")
        assert await cached(router, "a", cache_salt="mine")
        assert not await cached(router, "c", cache_salt="mine")
        told = {json.loads(received.body)["cache_salt"] for received in engine.received[:2]}
        (salt,) = told
        assert len(salt) == 64  # and it reveals nothing that tenants can know
        assert not await cached(router, "c", cache_salt="a")
        # The rest of the body is unchanged, and so are bodies of tenants without isolation.
        sent = completion(PROMPT)
        assert json.loads(engine.received[0].body) == {**sent, "cache_salt": salt}
        assert json.loads(engine.received[3].body) == sent


def test_a_salt_needs_what_only_the_key_file_says(tmp_path: Path) -> None:
    (one,) = [t for t in _tenants(tmp_path, a={"isolate": True}) if t.name == "a"]
    assert one.secret.hex() not in repr(one)
    salting = Salting(lambda url: "vllm")
    body = json.dumps(chat("hi")).encode()
    salts = set()
    for secret in (one.secret, b"another"):
        tenant = Tenant(name="a", isolate=True, secret=secret)
        said = json.loads(salting(body, "/v1/chat/completions", tenant, "http://x"))
        salts.add(said["cache_salt"])
    assert len(salts) == 2


def test_only_fields_that_an_engine_knows_are_set() -> None:
    tenant = Tenant(name="a", isolate=True, secret=b"s")
    body = b'{"text": "hi", "extra_key": null}'
    kinds = {"http://v": "vllm", "http://s": "sglang", "http://l": "llamacpp", "http://p": ""}
    salting = Salting(kinds.__getitem__)
    for url in ("http://v", "http://l", "http://p"):
        assert salting(body, "/generate", tenant, url) == body
    said = json.loads(salting(body, "/generate", tenant, "http://s"))
    assert len(said["extra_key"]) == 64
    assert salting(body, "/generate", Tenant(name="b"), "http://s") == body


def test_a_requests_own_salt_is_what_it_says_and_not_how_it_is_spelled() -> None:
    tenant = Tenant(name="a", isolate=True, secret=b"s")
    salting = Salting(lambda url: "vllm")

    def salt(body: bytes) -> str:
        path = "/v1/completions"
        return str(json.loads(salting(body, path, tenant, "http://x"))["cache_salt"])

    assert salt(b"{}") == salt(b'{"cache_salt": null}') == salt(b'{"cache_salt": ""}')
    assert salt(b'{"cache_salt": "mine"}') == salt(b'{"cache_salt": "m\\u0069ne"}')
    assert salt(b'{"cache_salt": "mine"}') != salt(b"{}")


async def test_prefixes_are_computed_ahead_in_their_tenants_name_space() -> None:
    secret = Tenant(name="a", isolate=True, secret=b"s")
    salting = Salting(lambda url: "vllm")
    forwarding = Forwarding(Live(RouterSettings()))
    async with Vllm() as engine, upstream() as http:
        body = json.dumps(completion(PROMPT)).encode()
        source = SentRequest("/v1/completions", body, "m", secret)
        keys = b"k" * KEY_BYTES
        hot = HotPrefix(keys, keys, 1.0, source)
        await Prefiller(http, forwarding, salting)(engine.url, hot, 4.0)
        asked = json.loads(salting(body, source.path, secret, engine.url))
        assert json.loads(engine.received[0].body)["cache_salt"] == asked["cache_salt"]


async def test_an_engine_without_name_spaces_gets_the_body_as_it_came(
    valkey_url: str, tmp_path: Path
) -> None:
    file = key_file(tmp_path, a={"isolate": True})
    async with (
        LlamaCpp() as engine,
        serving(valkey_url, key=ADMIN, api_keys=file, upstream=engine.url, **QUICK) as router,
    ):
        await router.ready(engine.name)
        sent = json.dumps(completion(PROMPT)).encode()
        await router.post("/v1/completions", sent, **bearer("a"))
        assert engine.received[0].body == sent


def _tenants(folder: Path, **tenants: dict[str, Any]) -> list[Tenant]:
    return list(read_keys(key_file(folder, **tenants)).tenants.values())
