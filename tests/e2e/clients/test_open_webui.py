"""The requests of open-webui, in the forms that its `routers/openai.py` and `routers/tasks.py`
send: `metadata` is removed before a body leaves it, and the model's `max_tokens`, 16 here, are in
each; in titles as `max_completion_tokens`.
"""

import json
from typing import Any

import aiohttp
import pytest

from tests.e2e.up_process import UpProcess

pytestmark = pytest.mark.e2e

MODEL = "smollm2"
CHATS = "/v1/chat/completions"
HEADERS = {
    "Authorization": "Bearer none",
    "X-OpenWebUI-User-Name": "Ada%20L",
    "X-OpenWebUI-User-Role": "admin",
    "X-OpenWebUI-Chat-Id": "6f1c",
}
USER = {"role": "user", "content": "Where is Rome?"}
ASSISTANT = {"role": "assistant", "content": "In Italy."}
HISTORY = "<chat_history>\nUSER: Where is Rome?\n\nASSISTANT: In Italy.\n</chat_history>"
SAMPLING = {
    "temperature": 0.8,
    "top_p": 0.9,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "seed": 7,
    "stop": ["###"],
    "logit_bias": {"5": -100},
    "max_tokens": 16,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "search_web",
        "description": "Search the web.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["query"],
        },
    },
}
CALL = {
    "index": 0,  # open-webui keeps it from the stream
    "id": "call_1",
    "type": "function",
    "function": {"name": "search_web", "arguments": '{"query": "Rome"}'},
}
CALLED = [
    USER,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Rome is in Italy."},
]
STREAMED: dict[str, dict[str, Any]] = {
    "a chat": {"messages": [USER], "max_tokens": 16},
    "a chat with usage": {
        "messages": [USER],
        "stream_options": {"include_usage": True},
        "max_tokens": 16,
    },
    "a system prompt, a history and all sliders": {
        "messages": [{"role": "system", "content": "Be brief."}, USER, ASSISTANT, USER],
        **SAMPLING,
    },
    "text in parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Where is Rome?"}]}],
        "max_tokens": 16,
    },
    "native tools": {"messages": [USER], "tools": [TOOL], "max_tokens": 16},
    "a tool's result": {"messages": CALLED, "tools": [TOOL], "max_tokens": 16},
}


def task(prompt: str, **limit: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"### Task:\n{prompt}\n### Chat History:\n{HISTORY}"}]
    return {"messages": messages, "stream": False, **limit}


TASKS = {
    "title": task('Write a title as { "title": "…" }.', max_completion_tokens=16),
    "tags": task('Write tags as { "tags": ["…"] }.', max_tokens=16),
    "follow-ups": task('Write questions as { "follow_ups": ["…"] }.', max_tokens=16),
    "queries": task('Write queries as { "queries": ["…"] }.', max_tokens=16),
    "tools of the prompt": {
        "messages": [
            {"role": "system", "content": f"Available tools: {json.dumps([TOOL])}"},
            {"role": "user", "content": "Query: History:\nUSER: Where is Rome?"},
        ],
        "stream": False,
        "max_tokens": 16,
    },
}


@pytest.mark.parametrize("name", STREAMED)
async def test_a_chat_streams_what_open_webui_reads(
    name: str, smollm2: UpProcess, http: aiohttp.ClientSession
) -> None:
    body = STREAMED[name]
    url = smollm2.url + CHATS
    sent = {"model": MODEL, "stream": True, **body}
    async with http.post(url, json=sent, headers=HEADERS) as answer:
        assert answer.status == 200, await answer.text()
        # By its type, open-webui decides whether to pass on a stream.
        assert "text/event-stream" in answer.headers["content-type"]
        lines = [line for line in (await answer.text()).splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert choices[-1]["finish_reason"] in ("stop", "length", "tool_calls")
    deltas = [choice["delta"] for choice in choices]
    assert any(delta.get("content") or delta.get("tool_calls") for delta in deltas)
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    if "stream_options" in body:
        (usage,) = usages
        assert 0 < usage["completion_tokens"] <= 16
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    else:
        assert not usages


@pytest.mark.parametrize("name", TASKS)
async def test_a_task_in_the_background_gets_a_message(
    name: str, smollm2: UpProcess, http: aiohttp.ClientSession
) -> None:
    url = smollm2.url + CHATS
    sent = {"model": MODEL, **TASKS[name]}
    async with http.post(url, json=sent, headers=HEADERS) as answer:
        assert answer.status == 200, await answer.text()
        read = await answer.json()
    (choice,) = read["choices"]
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"]
    assert 0 < read["usage"]["completion_tokens"] <= 16


async def test_the_list_of_models_has_what_its_menu_shows(
    smollm2: UpProcess, http: aiohttp.ClientSession
) -> None:
    async with http.get(f"{smollm2.url}/v1/models", headers=HEADERS) as answer:
        assert answer.status == 200
        read = await answer.json()
    assert read["object"] == "list" and not read.get("error")
    assert MODEL in [model["id"] for model in read["data"]]
    assert all(model["object"] == "model" for model in read["data"])


async def test_documents_are_embedded_in_batches(
    smollm2: UpProcess, http: aiohttp.ClientSession
) -> None:
    body = {"input": ["Rome is in Italy.", "Paris is in France."], "model": MODEL}
    url = f"{smollm2.url}/v1/embeddings"
    async with http.post(url, json=body, headers=HEADERS) as answer:
        assert answer.status == 200, await answer.text()
        data = (await answer.json())["data"]
    first, second = (row["embedding"] for row in data)
    assert len(first) == len(second) > 0 and first != second
