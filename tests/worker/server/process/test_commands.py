"""The commands that the scheduler gets: the stand-in answers with the command."""

import json
from base64 import b64decode
from typing import Any

import aiohttp
import pytest

from pando_worker.memory.namespace import namespace
from pando_worker.server.text.tokenizer import Tokenizer
from tests.worker.server.process.worker_process import MODEL, MODEL_NAME
from tests.worker.server.stand_in import CONTEXT, Trick, trick_token

TEXT = "the function returns a list of the names"
TOKENIZER = Tokenizer(MODEL)


async def told(http: aiohttp.ClientSession, path: str, body: dict[str, Any], **more: Any) -> Any:
    async with http.post(path, json=body, **more) as answer:
        assert answer.status == 400, await answer.text()
        return json.loads((await answer.json())["error"]["message"])


async def completion(http: aiohttp.ClientSession, **fields: Any) -> Any:
    body = {"model": MODEL_NAME, "prompt": TEXT, "seed": Trick.SHOWN, **fields}
    return await told(http, "/v1/completions", body)


async def chat(http: aiohttp.ClientSession, **fields: Any) -> Any:
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": MODEL_NAME, "messages": messages, "seed": Trick.SHOWN, **fields}
    return await told(http, "/v1/chat/completions", body)


async def test_all_sampling_fields_reach_the_scheduler(http: aiohttp.ClientSession) -> None:
    fields = {
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.25,
        "min_p": 0.125,
        "presence_penalty": 1.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.25,
    }
    more = {"logit_bias": {"5": -100, "6": 1}, "stop_token_ids": [9], "ignore_eos": True}
    expected = {
        **fields,
        "seed": Trick.SHOWN,
        "logit_bias": {"5": -100, "6": 1},
        "stop_token_ids": [9],
        "max_new_tokens": 8,
        "min_new_tokens": 3,
    }
    given = {**fields, **more, "max_tokens": 8, "min_tokens": 3}
    assert (await completion(http, **given))["sampling"] == expected
    assert (await chat(http, **given))["sampling"] == expected
    native = {**fields, **more, "max_new_tokens": 8, "min_new_tokens": 3, "seed": Trick.SHOWN}
    body = {"text": TEXT, "sampling_params": native}
    assert (await told(http, "/generate", body))["sampling"] == expected


async def test_what_a_request_does_not_say_the_model_says(http: aiohttp.ClientSession) -> None:
    sampling = (await completion(http))["sampling"]
    assert (sampling["temperature"], sampling["top_p"]) == (0.4, 0.9)
    assert sampling["repetition_penalty"] == 1.0
    assert sorted(sampling["stop_token_ids"]) == [1, 2]


async def test_truncation_keeps_the_prompts_end(http: aiohttp.ClientSession) -> None:
    ids = (await TOKENIZER.encode(TEXT)).token_ids
    assert (await completion(http, truncate_prompt_tokens=3))["input_ids"] == ids[-3:]
    long = list(range(10, 10 + CONTEXT))
    cut = await completion(http, prompt=long, truncate_prompt_tokens=-1, max_tokens=6)
    assert cut["input_ids"] == long[6:]
    assert len((await chat(http, truncate_prompt_tokens=4))["input_ids"]) == 4


@pytest.mark.parametrize(
    "constraint",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"choice": ["yes", "no"]}},
        {"guided_regex": "[0-9]+"},
        {"regex": "[0-9]+"},
        {"ebnf": 'root ::= "a" | "b"'},
        {"json_schema": '{"type": "object"}'},
    ],
    ids=lambda constraint: next(iter(constraint)),
)
async def test_constraints_become_a_grammar(
    http: aiohttp.ClientSession, constraint: dict[str, Any]
) -> None:
    assert "grammars" in json.loads((await completion(http, **constraint))["grammar"])
    assert "grammars" in json.loads((await chat(http, **constraint))["grammar"])
    name = next(iter(constraint))
    if name in ("regex", "ebnf", "json_schema"):
        body = {"text": TEXT, "sampling_params": {"seed": Trick.SHOWN, **constraint}}
        assert "grammars" in json.loads((await told(http, "/generate", body))["grammar"])


async def test_a_bad_constraint_is_refused_before_anything_runs(
    http: aiohttp.ClientSession,
) -> None:
    body = {"model": MODEL_NAME, "prompt": "x", "regex": "("}
    async with http.post("/v1/completions", json=body) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == "regex"


async def test_a_plain_request_has_neither_grammar_nor_deadline(
    http: aiohttp.ClientSession,
) -> None:
    command = await completion(http, response_format={"type": "text"})
    assert (command["grammar"], command["deadline_s"], command["logprobs"]) == (None, None, None)


async def test_priority_reaches_a_scheduler_whose_policy_knows_it(
    rich_http: aiohttp.ClientSession,
) -> None:
    assert (await completion(rich_http, priority=7))["priority"] == 7
    body = {"text": TEXT, "priority": -1, "sampling_params": {"seed": Trick.SHOWN}}
    assert (await told(rich_http, "/generate", body))["priority"] == -1
    headers = {"x-priority": "9"}
    assert (await told(rich_http, "/generate", body, headers=headers))["priority"] == 9
    async with rich_http.post("/generate", json=body, headers={"x-priority": "high"}) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == "x-priority"


async def test_a_policy_without_priorities_ignores_the_header(http: aiohttp.ClientSession) -> None:
    body = {"text": TEXT, "sampling_params": {"seed": Trick.SHOWN}}
    assert (await told(http, "/generate", body, headers={"x-priority": "9"}))["priority"] == 0


async def test_salts_of_header_and_body_name_the_name_space_of_every_kind_of_request(
    http: aiohttp.ClientSession,
) -> None:
    chat_body = {"model": MODEL_NAME, "messages": [{"role": "user", "content": "hi"}]}
    bodies: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/v1/completions", {"model": MODEL_NAME, "prompt": TEXT, "seed": Trick.SHOWN}),
        ("/v1/chat/completions", chat_body | {"seed": Trick.SHOWN}),
        ("/generate", {"text": TEXT, "sampling_params": {"seed": Trick.SHOWN}}),
        ("/v1/embeddings", {"model": MODEL_NAME, "input": [[trick_token(Trick.SHOWN)]]}),
    )
    for path, body in bodies:
        for tenant, own in ((None, None), ("t", None), (None, "s"), ("t", "s")):
            headers = {"x-pando-cache-salt": tenant} if tenant else {}
            salted = body | ({"cache_salt": own} if own else {})
            told_space = (await told(http, path, salted, headers=headers))["namespace"]
            assert b64decode(told_space) == namespace(tenant, own)


@pytest.mark.parametrize("salt", ["", "s" * 1025, 7])
async def test_a_salt_that_is_none_is_refused(http: aiohttp.ClientSession, salt: object) -> None:
    async with http.post("/generate", json={"text": "x", "cache_salt": salt}) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == "cache_salt"


async def test_the_deadline_is_the_shorter_of_the_clients_and_the_workers(
    rich_http: aiohttp.ClientSession,
) -> None:
    body = {"text": TEXT, "sampling_params": {"seed": Trick.SHOWN}}
    ms, s = "x-request-timeout-ms", "x-request-timeout"
    given: tuple[tuple[dict[str, str], int], ...] = (
        ({}, 300),
        ({ms: "600000"}, 300),
        ({ms: "20000"}, 20),
        ({s: "600"}, 300),
        ({s: "20.0"}, 20),
        ({s: "25", ms: "20000"}, 20),
    )
    for headers, limit in given:
        command = await told(rich_http, "/generate", body, headers=headers)
        assert limit - 10 < command["deadline_s"] < limit


@pytest.mark.parametrize("header", ["0", "soon", "-5", "1.5", "9" * 5000])
async def test_a_timeout_that_is_none_is_refused(http: aiohttp.ClientSession, header: str) -> None:
    headers = {"x-request-timeout-ms": header}
    async with http.post("/generate", json={"text": "x"}, headers=headers) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == "x-request-timeout-ms"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_waits_too_long_gets_504(
    http: aiohttp.ClientSession, stream: bool
) -> None:
    body = {"text": "x", "stream": stream, "sampling_params": {"seed": Trick.QUEUED}}
    async with http.post("/generate", json=body, headers={"x-request-timeout-ms": "50"}) as answer:
        assert answer.status == 504
        error = (await answer.json())["error"]
    assert (error["type"], error["code"]) == ("timeout_error", "deadline_exceeded")


async def test_a_stream_that_runs_too_long_ends_with_an_error_event(
    http: aiohttp.ClientSession,
) -> None:
    sampling = {"seed": Trick.SLOW, "max_new_tokens": 200}
    body = {"text": TEXT, "stream": True, "sampling_params": sampling}
    async with http.post(
        "/generate", json=body, headers={"x-request-timeout-ms": "1000"}
    ) as answer:
        assert answer.status == 200
        last = (await answer.text()).strip().split("\n\n")[-1]
    assert json.loads(last[6:])["error"]["code"] == "deadline_exceeded"
