"""Every kind of body: what the router reads of it, and that it reaches a replica unchanged."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.placement.prefix import chat_bytes, completion_bytes, messages_bytes, pair_bytes
from pando_router.endpoints import ENDPOINTS
from pando_router.endpoints.endpoint import JSON
from pando_router.errors import ApiError
from pando_router.requests.request import KEPT_BYTES, Request
from tests.router.world import Replica, serving

RATES: dict[str, Any] = {"prefill_tokens_per_s": 1000.0, "capacity_tokens": 1_000_000}
TURN = {"role": "user", "content": "hi"}

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [TURN]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [TURN], "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": [TURN]},
    "/v1/embeddings": {"input": "hi"},
    "/v1/rerank": {"query": "q", "documents": ["d", "e"]},
    "/rerank": {"query": "q", "documents": [{"text": "d"}]},
    "/v1/score": {"text_1": "q", "text_2": ["d", "e"]},
    "/score": {"query": "q", "items": ["d"], "label_token_ids": [1]},
    "/v1/classify": {"input": "hi"},
    "/classify": {"text": "hi"},
    "/generate": {"text": "hi"},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [1]},
}


def read(path: str, **fields: Any) -> Request:
    return ENDPOINTS[path].parse(json.dumps({"model": "m", **BODIES[path], **fields}).encode())


async def test_every_kind_of_body_reaches_a_replica_as_it_was_sent(valkey_url: str) -> None:
    assert BODIES.keys() == {path for path, one in ENDPOINTS.items() if one.media == JSON}
    async with (
        Replica(valkey_url, "a", endpoints=tuple(BODIES)) as a,
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        for path, body in BODIES.items():
            sent = json.dumps({"model": "m", "unknown": [1.00], **body}, indent=1).encode()
            assert (await router.post(path, sent)).status == 200, path
            assert (a.received[-1].path, a.received[-1].body) == (path, sent)


GENERATES = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"]


@pytest.mark.parametrize("path", GENERATES)
def test_hints_are_read_alike_in_every_body_that_generates(path: str) -> None:
    plain = read(path)
    assert (plain.stream, plain.n, plain.deterministic, plain.priority) == (False, 1, False, None)
    assert (plain.cache_salt, plain.user, plain.model) == ("", None, "m")
    hinted = read(path, stream=True, priority=-3, cache_salt="s", temperature=0)
    assert (hinted.stream, hinted.priority, hinted.cache_salt) == (True, -3, "s")
    assert hinted.deterministic
    assert read(path, temperature=0.7, seed=7).deterministic
    assert not read(path, temperature=0.7).deterministic


@pytest.mark.parametrize(
    ("path", "fields", "tokens"),
    [
        ("/v1/chat/completions", {"max_tokens": 9}, 9),
        ("/v1/chat/completions", {"max_tokens": 9, "max_completion_tokens": 8}, 8),
        ("/v1/completions", {"max_tokens": 9}, 9),
        ("/v1/responses", {"max_output_tokens": 9}, 9),
        ("/v1/messages", {"max_tokens": 8}, 8),
        ("/generate", {"sampling_params": {"max_new_tokens": 9}}, 9),
        ("/v1/embeddings", {}, 0),
        ("/v1/rerank", {}, 0),
    ],
)
def test_the_bound_of_an_answer(path: str, fields: dict[str, Any], tokens: int) -> None:
    assert read(path, **fields).output_tokens(256) == tokens


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"user": "ann"}),
        ("/v1/chat/completions", {"prompt_cache_key": "ann"}),
        ("/v1/completions", {"user": "else", "prompt_cache_key": "ann"}),
        ("/v1/completions", {"user": "ann", "prompt_cache_key": "x" * 1025}),
        ("/v1/completions", {"user": "ann", "prompt_cache_key": ["x"]}),
        ("/v1/responses", {"user": "ann"}),
        ("/v1/responses", {"prompt_cache_key": "ann"}),
        ("/v1/messages", {"metadata": {"user_id": "ann"}}),
        ("/v1/embeddings", {"user": "ann"}),
    ],
)
def test_the_client_of_a_request(path: str, fields: dict[str, Any]) -> None:
    assert read(path, **fields).user == "ann"


def test_the_hints_of_generate_are_among_its_sampling_params() -> None:
    request = read("/generate", sampling_params={"temperature": 0.0, "n": 3}, stream=True)
    assert (request.deterministic, request.n, request.stream) == (True, 3, True)
    assert read("/generate", sampling_params={"sampling_seed": 1}).deterministic
    salts = [
        read("/generate", **fields).cache_salt
        for fields in ({}, {"lora_path": "x"}, {"extra_key": "x"}, {"cache_salt": "x"})
    ]
    assert len(set(salts)) == 4
    assert salts[3] == "x"


@pytest.mark.parametrize("value", ["x", -1, 0, 1.5, True, 10**30, [1], {}, None])
def test_senseless_hints_are_the_workers_to_refuse(value: Any) -> None:
    request = read("/v1/chat/completions", max_tokens=value, n=value, priority="high", user=5)
    assert (request.max_tokens, request.n) == (None, 1)
    assert (request.priority, request.user) == (None, None)
    assert read("/v1/chat/completions", priority=10**30).priority is None
    assert not read("/v1/chat/completions", temperature=False, seed="x").deterministic


def test_prompts_in_many_forms() -> None:
    assert read("/v1/chat/completions").prefix == chat_bytes([TURN])
    assert read("/v1/responses").prefix == chat_bytes([TURN])
    assert read("/v1/messages").prefix == messages_bytes([TURN])
    several = read("/v1/completions", prompt=["one", "three"])
    assert (several.prefix, several.extra_bytes) == (b"one", 5)
    ids = read("/v1/completions", prompt=[[1, 2], [3]])
    assert (ids.prefix, ids.token_ids) == (completion_bytes([1, 2]), 3)
    assert read("/v1/rerank").prefix == pair_bytes("q", "d")
    assert read("/v1/rerank").extra_bytes == len(pair_bytes("q", "e"))
    assert read("/v1/score").prefix == read("/v1/rerank").prefix
    assert read("/v1/score", text_1=["a", "b"], text_2=["c", "d"]).extra_bytes == 3
    assert read("/classify").prefix == b"hi"
    assert read("/v1/embeddings", input=None, messages=[TURN]).prefix == chat_bytes([TURN])
    assert not read("/v1/messages/count_tokens").computes


TEXTS = st.text(max_size=3) | st.integers() | st.dictionaries(st.text(max_size=1), st.text())


@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, min_size=1, max_size=4))
def test_the_size_of_further_pairs_is_that_of_their_bytes(
    firsts: list[Any], seconds: list[Any]
) -> None:
    asked = read("/v1/score", text_1=firsts, text_2=seconds)
    texts = [
        [value] if type(value[0]) is int else value for value in (firsts, seconds)
    ]  # token ids are one text
    if len(texts[0]) == 1:
        texts[0] *= len(texts[1])
    prefix, *others = [pair_bytes(one, other) for one, other in zip(*texts, strict=False)]
    assert (asked.prefix, asked.extra_bytes) == (prefix, sum(map(len, others)))


def test_a_long_query_is_not_copied_for_each_of_many_documents() -> None:
    """100,000 copies of 1 MiB would be 100 GiB."""
    asked = read("/v1/rerank", query="q" * (1 << 20), documents=["d"] * 100_000)
    assert asked.extra_bytes == 99_999 * len(pair_bytes("q" * (1 << 20), "d"))


@given(st.lists(st.text(max_size=3) | st.lists(st.integers(0, 9)), min_size=2, max_size=5))
def test_the_size_of_further_prompts_is_that_of_their_bytes(prompts: list[Any]) -> None:
    sizes = [len(completion_bytes(prompt)) for prompt in prompts]
    assert read("/v1/completions", prompt=prompts).extra_bytes == sum(sizes[1:])


def test_responses_say_what_a_replica_must_remember() -> None:
    assert read("/v1/responses").earlier is None
    assert read("/v1/responses", previous_response_id="resp_1").earlier == "resp_1"
    assert read("/v1/responses", conversation={"id": "conv_1"}).earlier == "conv_1"
    assert read("/v1/responses", conversation="conv_1").earlier == "conv_1"


def test_salts_part_prefixes() -> None:
    long = "x" * 600
    plain = read("/v1/completions", prompt=long)
    salted = read("/v1/completions", prompt=long, cache_salt="s")
    keys = {
        plain.keys("m"),
        plain.keys("m", "adapter"),
        plain.keys("m", "", "s"),
        salted.keys("m"),
        salted.keys("m", "", "s"),
    }
    assert len(keys) == 5


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def test_tools_are_equal_in_any_spelling_and_order_of_requests() -> None:
    def prefix(spelled: str) -> bytes:
        body = '{"model": "m", "messages": [], "tools": ' + spelled + "}"
        return ENDPOINTS["/v1/chat/completions"].parse(body.encode()).prefix

    one, two = json.dumps(TOOLS), json.dumps(TOOLS, indent=2, sort_keys=True)
    assert prefix(one) == prefix(two) == prefix(one) != prefix("[]") == prefix("null")
    assert (
        read("/v1/chat/completions", functions=TOOLS).prefix
        == read("/v1/chat/completions", tools=TOOLS).prefix
    )
    huge = json.dumps([{"name": "f", "description": "x" * 100_000}])
    assert prefix(huge) == prefix(huge)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/chat/completions", {"tools": {"name": "f"}}, "tools"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": 5}]},
            "messages[0].content",
        ),
        ("/v1/responses", {"input": 5}, "input"),
        ("/v1/messages", {"messages": "hi"}, "messages"),
        ("/v1/messages", {"tools": "f"}, "tools"),
        ("/v1/rerank", {"documents": []}, "documents"),
        ("/v1/rerank", {"documents": "d"}, "documents"),
        ("/v1/score", {"text_1": None}, "text_1"),
        ("/v1/classify", {"input": None}, "input"),
        ("/v1/embeddings", {"input": {}}, "input"),
        ("/v1/embeddings", {"model": None}, "model"),
    ],
)
def test_what_cannot_be_placed_is_refused_by_name(
    path: str, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as refused:
        read(path, **fields)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("path", sorted(ENDPOINTS))
@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'"x"',
        b"null",
        b"",
        b"\xff\xfe",
        b'{"model": "\xff"}',
        b'{"model": "m", "prompt": ' + b"[" * 100_000,
        b'{"x": ' + b'{"x": ' * 100_000,
    ],
)
def test_what_is_no_object_is_refused(path: str, body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        ENDPOINTS[path].parse(body)
    assert refused.value.status == 400


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"9" * 5000])
def test_a_number_out_of_range_is_named(number: bytes) -> None:
    for field in (b"max_tokens", b"tools"):
        body = b'{"model": "m", "messages": [], "' + field + b'": ' + number + b"}"
        with pytest.raises(ApiError) as refused:
            ENDPOINTS["/v1/chat/completions"].parse(body)
        assert (refused.value.status, refused.value.param) == (400, field.decode())


_part = st.sampled_from(
    [
        {"type": "text", "text": "x"},
        {"type": "tool_result", "content": [{"type": "text", "text": "x"}]},
        {"type": "tool_result", "content": 5},
        {"type": "image_url"},
        {"type": "thinking", "thinking": None},
        {"type": None},
        5,
    ]
)
_content = st.none() | st.integers() | st.text(max_size=3) | st.lists(_part, max_size=3)
_item = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", 5]),
        "type": st.sampled_from(["message", "function_call", "reasoning", "item_reference", None]),
        "content": _content,
        "output": _content,
        "summary": _content,
        "tool_calls": st.lists(st.dictionaries(st.text(max_size=2), st.integers())),
    },
)


@given(path=st.sampled_from(sorted(BODIES)), items=st.lists(_item, max_size=4), system=_content)
def test_odd_conversations_parse_or_get_400(path: str, items: list[Any], system: Any) -> None:
    try:
        request = read(path, messages=items, input=items, system=system, instructions=system)
    except ApiError as error:
        assert error.status == 400
        assert error.param
    else:
        assert request.prompt_tokens(4.0) >= 1


async def test_a_chat_follows_its_own_history_and_not_another_chat_that_ends_alike(
    valkey_url: str,
) -> None:
    """Matching any other text, such as the last message or the whole body, would fail here."""
    question = {"role": "user", "content": "And then what happened? " * 100}
    answer = {"role": "assistant", "content": "It rained. " * 30, "refusal": None}

    def ask(story: str, *more: Any) -> dict[str, Any]:
        opening = {"role": "system", "content": f"A story of {story}. " * 100}
        return {"model": "m", "seed": len(more), "messages": [opening, question, *more]}

    async with (
        Replica(valkey_url, "a", **RATES),
        Replica(valkey_url, "b", **RATES),
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        path = "/v1/chat/completions"
        first = await router.post(path, ask("the sea"))
        other = await router.post(path, ask("the hills"))
        assert first.headers["x-pando-matched-tokens"] == "0"
        assert other.headers["x-pando-matched-tokens"] == "0"
        turn = ask("the sea", answer, question)
        prompt_bytes = len(chat_bytes(ask("the sea")["messages"]))
        again = await router.post(path, turn | {"stream": True, "temperature": 0.5})
        assert again.replica == first.replica
        assert int(again.headers["x-pando-matched-tokens"]) == prompt_bytes // 256 * 256 // 4
        elsewhere = await router.post(path, ask("the hills", answer, question))
        assert elsewhere.replica == other.replica


async def test_the_same_conversation_goes_to_its_prefix_through_any_api(valkey_url: str) -> None:
    system, text = "You know the sea. " * 100, "Tell me of it. " * 100
    turn = {"role": "user", "content": text}
    chat = {"messages": [{"role": "system", "content": system}, turn]}
    async with (
        Replica(valkey_url, "a", **RATES),
        Replica(valkey_url, "b", **RATES),
        serving(valkey_url) as router,
    ):
        await router.ready("a", "b")
        first = await router.post("/v1/chat/completions", {"model": "m", **chat})
        for path, body in (
            ("/v1/responses", {"instructions": system, "input": text}),
            ("/v1/messages", {"system": [{"type": "text", "text": system}], "messages": [turn]}),
        ):
            answer = await router.post(path, {"model": "m", **body})
            assert answer.replica == first.replica
            assert int(answer.headers["x-pando-matched-tokens"]) > 700, path


def test_a_placed_request_keeps_the_beginning_of_a_long_prompt_and_its_size() -> None:
    body = json.dumps({"model": "m", "prompt": "words " * 100_000}).encode()
    request = ENDPOINTS["/v1/completions"].parse(body)
    placed = request.with_cut_prefix()
    assert len(placed.prefix) == KEPT_BYTES
    assert request.prefix.startswith(placed.prefix)
    assert placed.prompt_bytes == request.prompt_bytes == 600_000
    assert placed.prompt_tokens(4.0) == request.prompt_tokens(4.0) == 150_000
    assert placed.with_cut_prefix() == placed
