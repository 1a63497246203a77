"""Clients' mistakes get OpenAI's error form and harm no other client."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_router.endpoints import ENDPOINTS
from pando_router.errors import ApiError
from tests.router.world import Stream, completion, fleet, serving

DEEP = b"[" * 60_000  # more count as too many values

BAD_BODIES: dict[str, tuple[str, bytes, str | None]] = {
    "no JSON": ("/v1/completions", b"{", None),
    "empty": ("/v1/completions", b"", None),
    "not UTF-8": ("/v1/completions", b'{"model":"m\xff","prompt":""}', None),
    "an array": ("/v1/completions", b"[]", None),
    "model missing": ("/v1/completions", b'{"prompt":"x"}', "model"),
    "model a number": ("/v1/completions", b'{"model":1,"prompt":"x"}', "model"),
    "prompt missing": ("/v1/completions", b'{"model":"m"}', "prompt"),
    "prompt an object": ("/v1/completions", b'{"model":"m","prompt":{}}', "prompt"),
    "token id negative": ("/v1/completions", b'{"model":"m","prompt":[-1]}', "prompt"),
    "token id huge": ("/v1/completions", b'{"model":"m","prompt":[99999999999]}', "prompt"),
    "messages missing": ("/v1/chat/completions", b'{"model":"m"}', "messages"),
    "messages a string": ("/v1/chat/completions", b'{"model":"m","messages":"x"}', "messages"),
    "message a string": ("/v1/chat/completions", b'{"model":"m","messages":["x"]}', "messages[0]"),
    "no text or ids": ("/generate", b"{}", "text"),
    "input missing": ("/v1/embeddings", b'{"model":"m"}', "input"),
    "input null": ("/v1/embeddings", b'{"model":"m","input":null}', "input"),
    "deep unknown field": ("/v1/completions", b'{"model":"m","prompt":"x","y":' + DEEP, None),
    "deep content": ("/v1/chat/completions", b'{"model":"m","messages":' + DEEP, None),
}


async def test_bad_body_gets_400_that_names_the_parameter(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        for case, (path, body, param) in BAD_BODIES.items():
            answer = await router.post(path, body)
            error = answer.json["error"]
            said = (answer.status, error["type"], error["param"])
            assert said == (400, "invalid_request_error", param), case
            assert error["message"], case
        assert not a.received
        assert (await router.post("/v1/completions", completion())).status == 200


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/chat/completions", [], "the request body must be an object, not a list"),
        ("/v1/chat/completions", {"messages": []}, "model is required"),
        (
            "/v1/chat/completions",
            {"model": 1, "messages": []},
            "model must be a string, not a number",
        ),
        (
            "/v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": [{"type": 5}]}]},
            "messages[0].content[0].type must be a string, not a number",
        ),
        (
            "/v1/completions",
            {"model": "m", "prompt": 5},
            "prompt must be a string or a list of token ids, not a number",
        ),
        (
            "/v1/completions",
            {"model": "m", "prompt": ["a", 5]},
            "prompt[1] must be a string or a list of token ids, not a number",
        ),
        (
            "/generate",
            {"text": True},
            "text must be a string or a list of token ids, not a boolean",
        ),
        ("/v1/embeddings", {"model": "m"}, "input is required (or messages)"),
    ],
)
def test_an_error_begins_with_the_field_and_its_place(path: str, body: Any, said: str) -> None:
    with pytest.raises(ApiError) as refused:
        ENDPOINTS[path].parse(json.dumps(body).encode())
    assert refused.value.message == said
    assert refused.value.param == (said.split()[0] if said[:3] != "the" else None)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
_fields = st.sampled_from(
    [
        "model",
        "prompt",
        "input",
        "messages",
        "tools",
        "text",
        "input_ids",
        "sampling_params",
        "max_tokens",
    ]
)


def parses_or_says_400(path: str, body: bytes) -> None:
    try:
        request = ENDPOINTS[path].parse(body)
    except ApiError as error:
        assert error.status == 400
        assert error.message
    else:
        assert request.prompt_tokens(4.0) >= 1
        assert 0 <= request.output_tokens(256) <= 256
        assert len(request.keys("m")) % 8 == 0


@given(path=st.sampled_from(sorted(ENDPOINTS)), body=st.binary(max_size=200))
def test_any_bytes_parse_or_get_400(path: str, body: bytes) -> None:
    parses_or_says_400(path, body)


@given(path=st.sampled_from(sorted(ENDPOINTS)), body=st.dictionaries(_fields, _json))
def test_any_json_object_parses_or_gets_400(path: str, body: dict[str, Any]) -> None:
    parses_or_says_400(path, json.dumps(body).encode())


async def test_unknown_model_gets_the_existing_ones(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        answer = await router.post("/v1/completions", {"model": "gpt", "prompt": "x"})
        error = answer.json["error"]
        assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")
        assert "'gpt'" in error["message"]
        assert "'m'" in error["message"]
        assert not a.received
        assert (await router.get("/v1/models/gpt")).status == 404
        assert (await router.get("/v1/models/m")).json["id"] == "m"


async def test_body_above_the_bound_gets_413_before_it_is_read(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", max_body_bytes=1000) as (router, [a]):
        declared = await router.request(
            "POST", "/v1/completions", data=b"x" * 1001, headers={"expect": "100-continue"}
        )
        assert (declared.status, declared.json["error"]["code"]) == (413, "request_too_large")

        async def without_length() -> Any:
            for _ in range(11):
                yield b"x" * 100

        streamed = await router.request("POST", "/v1/completions", data=without_length())
        assert streamed.status == 413
        assert not a.received
        assert (await router.post("/v1/completions", completion("x" * 900))).status == 200


async def test_compressed_body_is_refused_clearly(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, _):
        answer = await router.post("/v1/completions", b"\x1f\x8b", **{"content-encoding": "gzip"})
        assert answer.status == 415


async def test_wrong_methods_and_paths_get_openai_errors(valkey_url: str) -> None:
    async with serving(valkey_url) as router:
        for path in ENDPOINTS:
            answer = await router.get(path)
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
            assert answer.json["error"]["type"] == "invalid_request_error"
        answer = await router.get("/v1/images")
        assert answer.status == 404
        assert "/v1/images" in answer.json["error"]["message"]


async def test_generate_and_tokenize_need_no_model_where_there_is_one(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = stream = Stream("application/json")
        stream.put(b"{}")
        stream.end()
        assert (await router.post("/generate", {"input_ids": [1, 2]})).body == b"{}"
