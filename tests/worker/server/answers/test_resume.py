"""Answers that continue at another worker: the whole equals one worker's answer, wherever it broke.

With the real engine and the shipped model; an uninterrupted answer is the reference.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess

pytestmark = pytest.mark.e2e

ASK = {"x-pando-token-ids": "1"}
PROMPT = "Return a new list of the names"
CHAT = [{"role": "user", "content": "What does os.path.join do?"}]
Event = dict[str, Any]


@pytest.fixture(scope="module")
def engine() -> Iterator[WorkerProcess]:
    with WorkerProcess.start(stand_in=False, tool_call_parser="hermes", threads=1) as worker:
        yield worker


@pytest.fixture
async def http(engine: WorkerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(engine.url) as session:
        yield session


async def events(
    http: aiohttp.ClientSession, path: str, body: Event, headers: dict[str, str] = ASK
) -> tuple[list[Event], dict[str, str]]:
    stream = body | {"model": MODEL_NAME, "stream": True}
    async with http.post(path, json=stream, headers=headers) as answer:
        text = await answer.text()
        assert answer.status == 200, text
        data = [line.removeprefix("data: ") for line in text.split("\n") if line]
        if "error" not in data[-1]:
            assert data.pop() == "[DONE]"
        return [json.loads(line) for line in data], dict(answer.headers)


def ids_of(found: list[Event]) -> list[list[int]]:
    """The token ids of each event that has some."""
    return [c["token_ids"] for e in found for c in e.get("choices", ()) if "token_ids" in c]


def said(found: list[Event]) -> dict[str, Any]:
    """Everything that a client reads from a stream, except ids that a worker invents."""
    whole: dict[str, Any] = {
        "text": "",
        "arguments": "",
        "names": [],
        "finish": None,
        "usage": None,
        "scores": [],
    }
    for event in found:
        if usage := event.get("usage"):
            whole["usage"] = [usage["prompt_tokens"], usage["completion_tokens"]]
        for choice in event["choices"]:
            delta = choice.get("delta", {})
            whole["text"] += choice.get("text", "") + delta.get("content", "")
            for call in delta.get("tool_calls", ()):
                whole["arguments"] += call["function"]["arguments"]
                whole["names"] += [call["function"]["name"]] if "name" in call["function"] else []
            scores = choice.get("logprobs") or {}
            whole["scores"] += zip(
                scores.get("tokens", ()), scores.get("token_logprobs", ()), strict=True
            )
            whole["scores"] += [(s["token"], s["logprob"]) for s in scores.get("content", ())]
            whole["finish"] = choice["finish_reason"] or whole["finish"]
    return whole


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"day": {"enum": ["today", "tomorrow"]}, "why": {"type": "string"}},
            "required": ["day", "why"],
            "additionalProperties": False,
        },
    },
}
REQUESTS: dict[str, tuple[str, Event]] = {
    "greedy": ("/v1/completions", {"temperature": 0}),
    "seeded": ("/v1/completions", {"temperature": 1.2, "seed": 7}),
    "penalties": (
        "/v1/completions",
        {"temperature": 0.9, "seed": 3, "frequency_penalty": 1.5, "repetition_penalty": 1.3},
    ),
    "minimum": ("/v1/completions", {"temperature": 1.0, "seed": 4, "min_tokens": 30}),
    "characters of several tokens": (
        "/v1/completions",
        {"temperature": 2.0, "seed": 11, "ignore_eos": True},
    ),
    "chat": ("/v1/chat/completions", {"temperature": 0, "messages": CHAT}),
    "grammar": ("/v1/completions", {"seed": 5, "temperature": 1.5, "regex": "([a-f]{3}-){12}end"}),
    "call": (
        "/v1/chat/completions",
        {"seed": 5, "max_tokens": 60, "messages": CHAT, "tools": [TOOL], "tool_choice": "required"},
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_an_answer_goes_on_from_any_of_its_tokens(
    http: aiohttp.ClientSession, name: str
) -> None:
    path, fields = REQUESTS[name]
    body = {"max_tokens": 32, "stream_options": {"include_usage": True}, **fields}
    if "messages" not in body:
        body["prompt"] = PROMPT
    truth, _ = await events(http, path, body)
    told = ids_of(truth)
    tokens = [token for some in told for token in some]

    async def resumed(count: int) -> None:
        ids = tokens[:count]
        found, headers = await events(http, path, body | {"resume_token_ids": ids})
        assert said(found) == said(truth), f"after {len(ids)} tokens"
        assert headers["x-pando-resumed-tokens"] == str(len(ids))

    # The last token completes the output, so nothing continues from there.
    await asyncio.gather(*map(resumed, range(1, len(tokens))))
    assert len(tokens) > 5
    assert said(truth)["usage"][1] == sum(map(len, told))


async def test_a_stop_string_across_the_cut_is_found(http: aiohttp.ClientSession) -> None:
    body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0}
    text = said((await events(http, "/v1/completions", body))[0])["text"]
    body["stop"] = [text[40:60]]
    truth, _ = await events(http, "/v1/completions", body)
    assert said(truth)["text"] == text[: text.index(text[40:60])]
    assert said(truth)["finish"] == "stop"
    told = ids_of(truth)
    for count in range(1, len(told)):
        ids = [token for some in told[:count] for token in some]
        found, _ = await events(http, "/v1/completions", body | {"resume_token_ids": ids})
        assert said(found) == said(truth)


async def test_sglangs_form_goes_on_likewise(http: aiohttp.ClientSession) -> None:
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": 12, "seed": 3}}
    truth, _ = await events(http, "/generate", body)
    assert len(truth) > 3
    for event in truth[:-1]:
        found, _ = await events(http, "/generate", body | {"resume_token_ids": event["output_ids"]})
        last = found[-1]
        assert (last["text"], last["output_ids"]) == (truth[-1]["text"], truth[-1]["output_ids"])
        for count in ("prompt_tokens", "completion_tokens"):
            assert last["meta_info"][count] == truth[-1]["meta_info"][count]


TOKENS = 24
SCORED: dict[str, tuple[str, Event]] = {
    "completion": ("/v1/completions", {"prompt": PROMPT, "logprobs": 2}),
    "echoed": ("/v1/completions", {"prompt": PROMPT, "logprobs": 2, "echo": True}),
    "stop string": ("/v1/completions", {"prompt": PROMPT, "logprobs": 0, "stop": ["no such"]}),
    "seeded": ("/v1/completions", {"prompt": PROMPT, "logprobs": 0, "temperature": 1.5, "seed": 9}),
    "chat": ("/v1/chat/completions", {"messages": CHAT, "logprobs": True, "top_logprobs": 2}),
}


@pytest.mark.parametrize("name", SCORED)
async def test_what_goes_on_has_the_log_probabilities_that_it_would_have_had(
    http: aiohttp.ClientSession, name: str
) -> None:
    path, fields = SCORED[name]
    body = {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, **fields}
    found, _ = await events(http, path, body)
    truth, ids = said(found), [token for some in ids_of(found) for token in some]
    for count in (1, 7, 20):
        rest = said((await events(http, path, body | {"resume_token_ids": ids[:count]}))[0])
        assert rest["text"] == truth["text"]
        known = truth["scores"][len(truth["scores"]) - TOKENS + count :]
        assert [token for token, _ in rest["scores"]] == [token for token, _ in known]
        scores = [score for _, score in rest["scores"]]
        assert scores == pytest.approx([score for _, score in known], abs=1e-4)


async def test_sglangs_form_has_log_probabilities_of_the_new_tokens(
    http: aiohttp.ClientSession,
) -> None:
    sampling = {"max_new_tokens": 12, "temperature": 0}
    body = {"text": PROMPT, "sampling_params": sampling, "return_logprob": True}
    body |= {"logprob_start_len": 0, "top_logprobs_num": 2}
    truth = (await events(http, "/generate", body))[0][-1]
    resumed = body | {"resume_token_ids": truth["output_ids"][:5]}
    last = (await events(http, "/generate", resumed))[0][-1]
    assert last["output_ids"] == truth["output_ids"]
    told, known = last["meta_info"], truth["meta_info"]
    assert not told["input_token_logprobs"]
    assert known["input_token_logprobs"]
    for name in ("output_token_logprobs", "output_top_logprobs"):
        assert len(told[name]) == len(known[name]) - 5
    scores = [score for score, _, _ in told["output_token_logprobs"]]
    known_scores = [score for score, _, _ in known["output_token_logprobs"][5:]]
    assert scores == pytest.approx(known_scores, abs=1e-4)


async def test_token_ids_are_sent_only_if_requested(http: aiohttp.ClientSession) -> None:
    body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0}
    assert not ids_of((await events(http, "/v1/completions", body, headers={}))[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n": 2}, "needs exactly one choice"),
        ({"max_tokens": 2}, "leaves none of the 2"),
        ({"resume_token_ids": [10**6]}, "must be below the vocabulary's size"),
        ({"regex": "[0-9]{9}", "resume_token_ids": [70, 71]}, "does not follow the grammar"),
    ],
)
async def test_what_cannot_go_on_is_refused(
    http: aiohttp.ClientSession, fields: Event, message: str
) -> None:
    body = {"model": MODEL_NAME, "prompt": PROMPT, "max_tokens": 9, "resume_token_ids": [70, 71]}
    async with http.post("/v1/completions", json=body | fields) as answer:
        assert answer.status == 400
        assert message in (await answer.json())["error"]["message"]


async def chat(http: aiohttp.ClientSession, **fields: Any) -> tuple[int, Any]:
    body = {"model": MODEL_NAME, "temperature": 0, "max_tokens": 24, **fields}
    async with http.post("/v1/chat/completions", json=body) as answer:
        return answer.status, await answer.json()


async def test_a_continued_message_goes_on_where_it_ends(http: aiohttp.ClientSession) -> None:
    _, whole = await chat(http, messages=CHAT)
    text = whole["choices"][0]["message"]["content"]
    begun = text[: text.index(" ", len(text) // 2)]
    messages = [*CHAT, {"role": "assistant", "content": begun}]
    _, rest = await chat(
        http, messages=messages, continue_final_message=True, add_generation_prompt=False
    )
    assert (begun + rest["choices"][0]["message"]["content"]).startswith(text)
    assert rest["usage"]["prompt_tokens"] > whole["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("last", "fields", "message"),
    [
        ({"role": "user", "content": "x"}, {}, "not 'assistant'"),
        ({"role": "assistant", "content": ""}, {}, "must have text"),
        ({"role": "assistant", "content": "x", "tool_calls": []}, {}, None),
        (
            {"role": "assistant", "content": "x"},
            {"add_generation_prompt": True},
            "mutually exclusive",
        ),
    ],
)
async def test_only_an_assistants_text_can_be_continued(
    http: aiohttp.ClientSession, last: Event, fields: Event, message: str | None
) -> None:
    status, answer = await chat(http, messages=[*CHAT, last], continue_final_message=True, **fields)
    if message is None:
        assert status == 200
    else:
        assert status == 400
        assert message in answer["error"]["message"]
