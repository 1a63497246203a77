"""The available models: pools, aliases, adapters, and which replicas have which endpoint."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI, NotFoundError
from pydantic import ValidationError

from pando_router.configuration.settings import RouterSettings
from pando_router.errors import ApiError
from pando_router.requests.rename import with_model
from tests.router.world import Replica, chat, completion, fleet, serving

RATES: dict[str, Any] = {"prefill_tokens_per_s": 1000.0, "capacity_tokens": 1_000_000}
LONG = "".join(f"{i:07d} " for i in range(1024))


async def test_models_aliases_and_adapters_are_listed_as_openais_library_reads_them(
    valkey_url: str,
) -> None:
    async with (
        Replica(valkey_url, "a", pool="one", model="llama", adapters=("pirate", "poet")),
        Replica(valkey_url, "b", pool="two", model="qwen", max_request_tokens=4096),
        serving(valkey_url, aliases={"gpt-4o": "llama", "arr": "pirate", "gone": "x"}) as router,
        AsyncOpenAI(base_url=f"{router.url}/v1", api_key="none", max_retries=0) as client,
    ):
        await router.ready("a", "b")
        listed = {model.id: model.model_dump() async for model in client.models.list()}
        relations = {name: (card["root"], card["parent"]) for name, card in listed.items()}
        assert relations == {
            "llama": ("llama", None),
            "qwen": ("qwen", None),
            "pirate": ("pirate", "llama"),
            "poet": ("poet", "llama"),
            "gpt-4o": ("llama", None),
            "arr": ("pirate", "llama"),
        }
        assert listed["qwen"]["max_model_len"] == 4096
        assert (await client.models.retrieve("arr")).id == "arr"
        with pytest.raises(NotFoundError, match="'gone', an alias of 'x', does not exist"):
            await client.models.retrieve("gone")
        with pytest.raises(NotFoundError) as unknown:
            await client.chat.completions.create(model="nobody", messages=[])
        assert unknown.value.code == "model_not_found"
        for name in listed:
            assert repr(name) in unknown.value.message


async def test_an_alias_is_forwarded_by_its_real_name_and_nothing_else_changes(
    valkey_url: str,
) -> None:
    body = b'{"model": "gpt-4o" ,"prompt": "caf\\u00e9", "temperature": 1.00, "x": {"model": "m"}}'
    async with fleet(valkey_url, "a", aliases="gpt-4o=m") as (router, [a]):
        assert (await router.post("/v1/completions", body)).status == 200
        forwarded = a.received[0]
        assert json.loads(forwarded.body) == json.loads(body) | {"model": "m"}
        for spelled in (b'"caf\\u00e9"', b"1.00", b'{"model": "m"}'):
            assert spelled in forwarded.body
        assert forwarded.headers["content-length"] == str(len(forwarded.body))
        by_its_name = body.replace(b"gpt-4o", b"m")
        await router.post("/v1/completions", by_its_name)
        assert a.received[1].body == by_its_name


async def test_an_alias_shares_the_prefixes_of_what_it_stands_for(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", **RATES),
        serving(valkey_url, aliases={"other": "m"}) as router,
    ):
        await router.ready("a")
        await router.post("/v1/completions", completion(LONG))
        again = await router.post("/v1/completions", {"model": "other", "prompt": LONG})
        assert int(again.headers["x-pando-matched-tokens"]) > 1000


async def test_an_alias_goes_before_a_model_of_the_same_name(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", pool="old", model="old"),
        Replica(valkey_url, "b", pool="new", model="new"),
        serving(valkey_url, aliases={"old": "new"}) as router,
    ):
        await router.ready("a", "b")
        answer = await router.post("/v1/completions", {"model": "old", "prompt": "x"})
        assert answer.replica == "b"


def test_an_alias_of_an_alias_is_refused() -> None:
    with pytest.raises(ValidationError, match="a is an alias of b, which is itself an alias"):
        RouterSettings(aliases={"a": "b", "b": "m"})


async def test_an_adapters_requests_go_to_replicas_that_have_it_and_share_no_prefix_with_its_model(
    valkey_url: str,
) -> None:
    async with (
        Replica(valkey_url, "a", **RATES),
        Replica(valkey_url, "b", adapters=("poet",), **RATES) as b,
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        for i in range(6):
            answer = await router.post("/v1/completions", {"model": "poet", "prompt": f"{i}"})
            assert answer.replica == "b"
        assert json.loads(b.received[0].body)["model"] == "poet"
        await router.post("/v1/completions", {"model": "poet", "prompt": LONG})
        base = await router.post("/v1/completions", completion(LONG))
        assert base.headers["x-pando-matched-tokens"] == "0"
        again = await router.post("/v1/completions", {"model": "poet", "prompt": LONG})
        assert int(again.headers["x-pando-matched-tokens"]) > 1000


@pytest.mark.parametrize("policy", ["cache_aware", "round_robin"])
async def test_only_replicas_that_have_the_endpoint_are_candidates(
    valkey_url: str, policy: str
) -> None:
    both = ("/v1/completions", "/v1/embeddings")
    async with (
        Replica(valkey_url, "a", endpoints=both[:1]),
        Replica(valkey_url, "b", endpoints=both),
        Replica(valkey_url, "c", endpoints=both[:1]),
        serving(valkey_url, policy=policy) as router,
    ):
        await router.ready("a", "b", "c")
        embedded = [
            (await router.post("/v1/embeddings", {"model": "m", "input": f"{i}"})).replica
            for i in range(6)
        ]
        assert set(embedded) == {"b"}
        completed = [
            (await router.post("/v1/completions", completion(f"{i}"))).replica for i in range(12)
        ]
        assert len(set(completed)) > 1
        missing = await router.post("/v1/chat/completions", chat("hi"))
        error = missing.json["error"]
        assert (missing.status, error["code"]) == (404, "endpoint_not_found")
        assert (
            "/v1/chat/completions; they serve /v1/completions, /v1/embeddings" in (error["message"])
        )


async def test_a_replica_that_names_no_endpoints_is_asked_for_anything(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", endpoints=("/v1/completions",)),
        Replica(valkey_url, "b"),
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        body = {"model": "m", "query": "q", "documents": ["d"]}
        assert (await router.post("/v1/rerank", body)).replica == "b"


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=10,
)
_names = st.sampled_from(["model", "mod\u00e9l", 'mo"del', "x", ""]) | st.text(max_size=4)


@given(
    st.dictionaries(_names, _json, max_size=5),
    st.text(max_size=6).filter(lambda name: name.isascii() or name.isprintable()),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_only_the_model_of_a_body_is_replaced(
    body: dict[str, Any], model: str, indent: Any, ensure_ascii: bool
) -> None:
    spelled = json.dumps(body, indent=indent, ensure_ascii=ensure_ascii).encode()
    renamed = with_model(spelled, model)
    assert json.loads(renamed) == body | {"model": model}
    assert list(json.loads(renamed)) == list(body | {"model": model})
    for name, value in body.items():
        if name != "model" and not isinstance(value, (dict, list)):
            assert json.dumps(value, ensure_ascii=ensure_ascii).encode() in renamed


def test_the_last_of_two_models_counts_and_escapes_hide_none() -> None:
    body = b'{"model": "first", "n": 1e5, "mod\\u0065l": "second"}'
    assert with_model(body, "real") == b'{"model":"real","n":1e5}'


@pytest.mark.parametrize("body", [b"[]", b'"model"', b"{", b'{"a":' + b"[" * 100_000])
def test_what_is_no_object_has_no_model_to_replace(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        with_model(body, "m")
    assert refused.value.status == 400
