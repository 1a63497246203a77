"""The OpenAI API with OpenAI's own client. The stand-in's output repeats its prompt's tokens."""

import json
from typing import Any

import aiohttp
import openai
import pytest

from pando_worker.server.text.tokenizer import Tokenizer
from tests.worker.server.process.worker_process import MODEL, MODEL_NAME
from tests.worker.server.stand_in import CONTEXT, Trick

TEXT = "the function returns a list of the names"
TOKENIZER = Tokenizer(MODEL)


async def ids_of(text: str) -> list[int]:
    return (await TOKENIZER.encode(text)).token_ids


async def test_completion_returns_text_and_usage(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    done = await client.completions.create(model=MODEL_NAME, prompt=TEXT, max_tokens=len(ids))
    [choice] = done.choices
    assert (choice.text, choice.finish_reason) == (TEXT, "length")
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (len(ids), len(ids))
    assert done.usage.total_tokens == 2 * len(ids)


async def test_token_ids_are_a_prompt(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    for prompt in (ids, [ids]):
        done = await client.completions.create(
            model=MODEL_NAME,
            prompt=prompt,
            max_tokens=len(ids),
        )
        assert done.choices[0].text == TEXT


async def test_streamed_completion_is_the_same_text(client: openai.AsyncOpenAI) -> None:
    text = "héllo wörld, 世界 🙂 " * 2
    ids = await ids_of(text)
    stream = await client.completions.create(
        model=MODEL_NAME, prompt=text, max_tokens=len(ids), stream=True
    )
    choices = [chunk.choices[0] async for chunk in stream]
    assert "".join(choice.text for choice in choices) == text
    assert [choice.finish_reason for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert len(choices) > 5


async def test_second_identical_prompt_reports_its_cached_tokens(
    client: openai.AsyncOpenAI,
) -> None:
    prompt = "a prompt that no other test sends"
    for expected in (False, True):
        raw = await client.completions.with_raw_response.create(
            model=MODEL_NAME, prompt=prompt, max_tokens=1
        )
        usage = raw.parse().usage
        assert usage is not None and usage.prompt_tokens_details is not None
        cached = usage.prompt_tokens_details.cached_tokens
        assert cached == (usage.prompt_tokens - 1 if expected else 0)
        assert raw.headers["x-pando-cached-tokens"] == str(cached)
        assert raw.headers["x-pando-prompt-tokens"] == str(usage.prompt_tokens)


async def test_chat_stream_begins_with_the_role_and_ends_with_usage(
    client: openai.AsyncOpenAI,
) -> None:
    stream = await client.chat.completions.create(
        model=MODEL_NAME,
        messages=[{"role": "user", "content": [{"type": "text", "text": "hello there"}]}],
        max_completion_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    *_, finish, last = chunks
    assert finish.choices[0].finish_reason == "length"
    assert last.choices == [] and last.usage is not None
    assert last.usage.completion_tokens == 8
    assert all(chunk.usage is None for chunk in chunks[:-1])
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert "user" in text  # the rendered template, repeated


async def test_chat_answers_whole(client: openai.AsyncOpenAI) -> None:
    done = await client.chat.completions.create(
        model=MODEL_NAME,
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=6,
        extra_body={"ignore_eos": True},
    )
    assert done.choices[0].message.role == "assistant"
    assert done.choices[0].finish_reason == "length"
    assert done.id.startswith("chatcmpl-")


@pytest.mark.parametrize("trick", [None, Trick.TOGETHER], ids=["one by one", "all at once"])
@pytest.mark.parametrize("include", [False, True])
async def test_stop_string_across_tokens_cuts_the_text(
    client: openai.AsyncOpenAI, trick: int | None, include: bool
) -> None:
    stop = "returns a l"
    done = await client.completions.create(
        model=MODEL_NAME,
        prompt=TEXT,
        max_tokens=100,
        stop=["nowhere", stop],
        seed=trick,
        extra_body={"include_stop_str_in_output": include},
    )
    [choice] = done.choices
    expected = TEXT[: TEXT.index(stop)] + (stop if include else "")
    assert (choice.text, choice.finish_reason) == (expected, "stop")
    assert done.usage is not None
    ids = await ids_of(TEXT)
    reached = [n for n in range(1, 20) if stop in TOKENIZER.decode(ids[:n])]
    assert done.usage.completion_tokens == reached[0]


async def test_stop_token_ends_the_text_before_itself(client: openai.AsyncOpenAI) -> None:
    ids = await ids_of(TEXT)
    done = await client.completions.create(
        model=MODEL_NAME, prompt=TEXT, max_tokens=50, extra_body={"stop_token_ids": [ids[3]]}
    )
    assert done.choices[0].finish_reason == "stop"
    assert done.choices[0].text == TOKENIZER.decode(ids[:3])


async def test_eos_ends_the_text_unless_it_is_ignored(client: openai.AsyncOpenAI) -> None:
    eos = TOKENIZER.eos_token_id
    assert eos is not None
    ids = [*(await ids_of("one two")), eos]
    for ignore, reason in ((False, "stop"), (True, "length")):
        done = await client.completions.create(
            model=MODEL_NAME,
            prompt=ids,
            max_tokens=2 * len(ids),
            extra_body={"ignore_eos": ignore},
        )
        assert done.choices[0].finish_reason == reason
        assert done.choices[0].text == "one two" * (2 if ignore else 1)


async def test_models_names_the_model(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL_NAME]
    assert (await client.models.retrieve(MODEL_NAME)).id == MODEL_NAME
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("other")


async def test_chat_without_max_tokens_may_fill_the_context(client: openai.AsyncOpenAI) -> None:
    done = await client.chat.completions.create(
        model=MODEL_NAME,
        messages=[{"role": "user", "content": "hi"}],
        extra_body={"ignore_eos": True},
    )
    assert done.usage is not None and done.usage.total_tokens == CONTEXT


BAD: list[tuple[dict[str, Any], str | None, str]] = [
    ({"max_tokens": -1}, "max_tokens", "max_tokens must be at least 0, not -1"),
    ({"max_tokens": 0}, "max_tokens", "echo"),
    ({"max_tokens": "7"}, "max_tokens", "max_tokens must be an integer, not '7'"),
    ({"max_tokens": 10_000}, "max_tokens", "10000"),
    ({"temperature": 2.5}, "temperature", "temperature must be between 0 and 2, not 2.5"),
    ({"temperature": float("nan")}, "temperature", "finite"),
    ({"top_p": 0}, "top_p", "top_p must be more than 0 and at most 1, not 0"),
    ({"top_k": -2}, "top_k", "-1"),
    ({"min_p": 1.5}, "min_p", "1.5"),
    ({"seed": 2**63}, "seed", "less than"),
    ({"stop": [""]}, "stop", "characters"),
    ({"stop": ["a"] * 17}, "stop", "16"),
    ({"stop": 5}, "stop", "list of strings"),
    ({"n": 0}, "n", "n must be between 1 and 128, not 0"),
    ({"n": 129}, "n", "128"),
    ({"n": 9}, "n", "8 requests at once"),
    ({"n": 8, "prompt": ["a"] * 200}, "prompt", "1600"),
    ({"n": 3, "best_of": 2}, "best_of", "below n"),
    ({"best_of": 2, "stream": True}, "best_of", "streamed"),
    ({"logprobs": 21}, "logprobs", "20"),
    ({"logprobs": True}, "logprobs", "logprobs must be an integer, not true"),
    ({"logit_bias": {"five": 1}}, "logit_bias", "token ids"),
    ({"logit_bias": {"5": 101}}, "logit_bias[5]", "100"),
    ({"logit_bias": {"3072": 1}}, "logit_bias", "3072"),
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias", "1024"),
    ({"presence_penalty": 2.5}, "presence_penalty", "2.5"),
    ({"frequency_penalty": -3}, "frequency_penalty", "-3"),
    ({"repetition_penalty": 0}, "repetition_penalty", "0.01"),
    ({"repetition_penalty": 1e39}, "repetition_penalty", "100"),
    ({"stop_token_ids": [5, 3072], "min_tokens": 2}, "stop_token_ids", "3072"),
    ({"stop_token_ids": [10**30]}, "stop_token_ids[0]", "2147483648"),
    ({"top_k": 2**31}, "top_k", "2147483648"),
    ({"seed": 2**63}, "seed", "less than"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens", "max_tokens is only 4"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "at least one"),
    ({"priority": 2}, "priority", "lpm"),
    ({"bad_words": ["x"]}, "bad_words", "not supported"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "stream"),
    ({"prompt": ["a", ""]}, "prompt", "no tokens"),
    ({"prompt": []}, "prompt", "no tokens"),
    ({"prompt": ""}, "prompt", "no tokens"),
    ({"prompt": [5, 3072]}, "prompt", "3072"),
    ({"prompt": [2**31]}, "prompt[0]", "2147483648"),
    ({"prompt": [-1]}, "prompt[0]", "prompt[0] must be at least 0, not -1"),
    ({"prompt": "\ud800"}, "prompt", "Unicode"),
    ({"prompt": {"a": 1}}, "prompt", "prompt must be a string or a list, not an object"),
    ({"prompt": "word " * 2000}, "prompt", str(CONTEXT)),
    ({"model": None}, "model", "model must be a string, not null"),
    ({"src_lang": "en_XX", "tgt_lang": "de_DE"}, "src_lang", "no languages: leave src_lang out"),
    ({"tgt_lang": "de_DE"}, "tgt_lang", "no languages: leave tgt_lang out"),
]


@pytest.mark.parametrize(("fields", "param", "words"), BAD, ids=[str(case[0])[:30] for case in BAD])
async def test_bad_values_are_named(
    http: aiohttp.ClientSession, fields: dict[str, Any], param: str | None, words: str
) -> None:
    body = {"model": MODEL_NAME, "prompt": "hello", **fields}
    async with http.post("/v1/completions", json=body) as answer:
        error = (await answer.json())["error"]
        assert (answer.status, error["type"]) == (400, "invalid_request_error"), error
    assert error["param"] == param
    assert words in error["message"]


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"content": "no role"}]}, "messages[0].role", "required"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "not 5"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content",
            "type 'image_url'",
        ),
        (
            {"messages": [{"role": "user", "content": ["x"]}]},
            "messages[0].content",
            "{type: 'text', text: ...}",
        ),
        ({"messages": [{"role": "bot", "content": "x"}]}, "messages[0].role", "not 'bot'"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "content is required"),
        ({"messages": [{"role": "system", "content": None}]}, "messages[0].content", "required"),
        (
            {"messages": [{"role": "tool", "content": "31 mm"}]},
            "messages[0].tool_call_id",
            "tool_call_id is required",
        ),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages", "Unicode"),
        ({"messages": [{"role": "user", "content": "x", "name": "\ud800"}]}, None, ""),
        ({"top_logprobs": 1}, "top_logprobs", "logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "20"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs", "set here"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "set here"),
        ({"reasoning_effort": 3}, "reasoning_effort", "string"),
        ({"web_search_options": {}}, "web_search_options", "not supported"),
    ],
)
async def test_bad_chats_are_named(
    http: aiohttp.ClientSession, fields: dict[str, Any], param: str | None, words: str
) -> None:
    body = {"model": MODEL_NAME, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    async with http.post("/v1/chat/completions", json=body | fields) as answer:
        if param is None:  # a name that this model's template does not use
            assert answer.status == 200
            return
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert error["param"] == param
        assert words in error["message"]


async def test_prompt_beyond_the_context_has_openais_code(http: aiohttp.ClientSession) -> None:
    body = {"model": MODEL_NAME, "prompt": [5] * CONTEXT, "max_tokens": 1}
    async with http.post("/v1/completions", json=body) as answer:
        error = (await answer.json())["error"]
    assert error["code"] == "context_length_exceeded"
    assert str(CONTEXT) in error["message"]


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/v1/chat/completions", "messages"),
        ("/v1/responses", "input"),
        ("/v1/messages", "messages"),
        ("/v1/messages/count_tokens", "messages"),
    ],
)
async def test_far_more_messages_than_the_context_has_tokens_are_refused(
    http: aiohttp.ClientSession, path: str, param: str
) -> None:
    turns = [{"role": role, "content": "x"} for role in ("user", "assistant")] * (CONTEXT + 1)
    turns.append(turns[0])  # what ends with an assistant's turn is continued in Anthropic's API
    body: dict[str, Any] = {"model": MODEL_NAME, param: turns}
    if path == "/v1/messages":
        body["max_tokens"] = 1
    async with http.post(path, json=body) as answer:
        assert answer.status == 400
        error = (await answer.json())["error"]
    assert f"{len(turns)} messages are far too many: at most {CONTEXT} tokens" in error["message"]
    assert error.get("code", "context_length_exceeded") == "context_length_exceeded"


async def test_unknown_model_is_404(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.completions.create(model="gpt-9", prompt="x")
    assert caught.value.code == "model_not_found"


async def test_unknown_and_neutral_fields_are_tolerated(client: openai.AsyncOpenAI) -> None:
    done = await client.completions.create(
        model=MODEL_NAME,
        prompt="x",
        max_tokens=1,
        n=1,
        presence_penalty=0,
        logit_bias={},
        extra_body={"a_field_of_tomorrow": {"x": 1}},
    )
    assert done.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "JSON"),
        (b"[]", "JSON object"),
        (b'"x"', "JSON object"),
        (b"", "JSON object"),
        (b"\xff", "Unicode"),
        (b"[" * 20_000, "nested too deeply"),
        (b'{"model": 1e999999}', "model"),
        (b'{"model": ' + b"9" * 5000 + b"}", "digits"),
    ],
    ids=["cut", "list", "string", "empty", "not utf-8", "deep", "huge number", "long number"],
)
async def test_what_is_not_a_json_object_is_a_400(
    http: aiohttp.ClientSession, body: bytes, words: str
) -> None:
    async with http.post(
        "/v1/completions", data=body, headers={"content-type": "application/json"}
    ) as answer:
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert error["type"] == "invalid_request_error"
        assert words in error["message"]


async def test_a_chat_nested_too_deeply_is_a_400(http: aiohttp.ClientSession) -> None:
    nested = "[" * 900 + "]" * 900
    message = f'{{"role": "user", "content": "x", "more": {nested}}}'
    body = f'{{"model": "{MODEL_NAME}", "messages": [{message}]}}'
    async with http.post(
        "/v1/chat/completions", data=body, headers={"content-type": "application/json"}
    ) as answer:
        assert answer.status == 400
        assert "nested" in (await answer.json())["error"]["message"]


async def test_unknown_path_and_method_have_openais_form(http: aiohttp.ClientSession) -> None:
    for method, path, status in (("GET", "/v1/nope", 404), ("GET", "/generate", 405)):
        async with http.request(method, path) as answer:
            assert answer.status == status
            assert "message" in (await answer.json())["error"]


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_too_long_is_refused(http: aiohttp.ClientSession, chunked: bool) -> None:
    body = json.dumps({"model": MODEL_NAME, "prompt": "x" * 100_000}).encode()

    async def pieces() -> Any:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    async with http.post("/v1/completions", data=pieces() if chunked else body) as answer:
        assert answer.status == 413
        assert "100000" in (await answer.json())["error"]["message"]


async def test_request_id_is_the_clients_where_it_is_sane(http: aiohttp.ClientSession) -> None:
    body = {"model": MODEL_NAME, "prompt": "x", "max_tokens": 1}
    for given, kept in (("my-id", True), ("x" * 129, False), ("with space", False), ("", False)):
        async with http.post(
            "/v1/completions", json=body, headers={"x-request-id": given}
        ) as answer:
            request_id = answer.headers["x-request-id"]
            assert (request_id == given) is kept
            assert (await answer.json())["id"] == f"cmpl-{request_id}"
    async with http.get("/nowhere", headers={"x-request-id": "abc"}) as answer:
        assert answer.headers["x-request-id"] == "abc"
