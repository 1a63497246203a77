"""/v1/messages, with Anthropic's own client.

The stand-in answers with the last message's text, parsed like a model that writes Hermes' calls and
Qwen 3's reasoning.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import anthropic
import pytest

from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess
from tests.worker.server.stand_in import Trick
from tests.worker.server.test_tools import ANSWER, PARAMETERS

TOOLS: list[Any] = [
    {"name": name, "description": name, "input_schema": PARAMETERS} for name in ("weather", "time")
]
USER = {"role": "user", "content": "Hello"}


@pytest.fixture
async def claude(rich_worker: WorkerProcess) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=rich_worker.url, api_key="none", max_retries=0
    ) as client:
        yield client


def asking(answer: str, **fields: Any) -> dict[str, Any]:
    return {
        "model": MODEL_NAME,
        "max_tokens": 200,
        "messages": [{"role": "user", "content": answer}],
        "extra_body": {"seed": Trick.ANSWERS},
        **fields,
    }


async def test_a_text_is_answered(claude: anthropic.AsyncAnthropic) -> None:
    message = await claude.messages.create(**asking("Fine, thanks."))
    assert [block.model_dump() for block in message.content] == [
        {"type": "text", "text": "Fine, thanks.", "citations": None}
    ]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.output_tokens > 3
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 5


async def test_thoughts_and_calls_are_blocks(claude: anthropic.AsyncAnthropic) -> None:
    message = await claude.messages.create(**asking(ANSWER, tools=TOOLS))
    thinking, text, weather, time = (block.model_dump() for block in message.content)
    assert (thinking["type"], thinking["thinking"]) == ("thinking", "Both.")
    assert (text["type"], text["text"].strip()) == ("text", "One moment.")
    assert (weather["type"], weather["name"], weather["input"]) == (
        "tool_use",
        "weather",
        {"city": "Ulm"},
    )
    assert time["input"] == {"city": "Bonn"}
    assert weather["id"] != time["id"]
    assert message.stop_reason == "tool_use"


async def test_a_stream_puts_together_to_the_same_message(
    claude: anthropic.AsyncAnthropic,
) -> None:
    whole = await claude.messages.create(**asking(ANSWER, tools=TOOLS))
    async with claude.messages.stream(**asking(ANSWER, tools=TOOLS)) as stream:
        kinds = [event.type async for event in stream]
        streamed = await stream.get_final_message()
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4
    parts = [_bare(block) for block in streamed.content]
    assert parts == [_bare(block) for block in whole.content]
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.usage.output_tokens == whole.usage.output_tokens


async def test_a_stop_sequence_and_the_limit_are_told_apart(
    claude: anthropic.AsyncAnthropic,
) -> None:
    stopped = await claude.messages.create(**asking("one two three", stop_sequences=["two"]))
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "two")
    cut = await claude.messages.create(**asking("one two three four five", max_tokens=2))
    assert cut.stop_reason == "max_tokens"
    assert cut.usage.output_tokens == 2


async def test_a_conversation_with_tools_and_thoughts_is_one_prompt(
    claude: anthropic.AsyncAnthropic, rich_http: aiohttp.ClientSession
) -> None:
    """It has as many tokens as the chat that says the same, and the next turn finds it cached."""
    system: list[Any] = [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    ]
    called = {"type": "tool_use", "id": "call_1", "name": "time", "input": {"city": "Bonn"}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "noon"}
    turns: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "What time is it?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, called]},
        {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]},
        {"role": "system", "content": [{"type": "text", "text": "The user left."}]},
    ]
    counted = await claude.messages.count_tokens(
        model=MODEL_NAME, system=system, messages=turns, tools=TOOLS
    )
    function = {"name": "time", "arguments": json.dumps({"city": "Bonn"})}
    chat = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What time is it?"},
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
            {"role": "user", "content": "Well?"},
            {"role": "system", "content": "The user left."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": t["name"],
                    "description": t["description"],
                    "parameters": t["input_schema"],
                },
            }
            for t in TOOLS
        ],
        "chat_template_kwargs": {"enable_thinking": False},
    }
    async with rich_http.post("/tokenize", json=chat) as answer:
        assert counted.input_tokens == (await answer.json())["count"]


async def test_the_last_message_of_the_assistant_is_continued(
    claude: anthropic.AsyncAnthropic, http: aiohttp.ClientSession
) -> None:
    messages = [USER, {"role": "assistant", "content": "I am"}]
    async with http.post(
        "/v1/messages/count_tokens", json={"model": MODEL_NAME, "messages": messages}
    ) as answer:
        prefilled = (await answer.json())["input_tokens"]
    async with http.post(
        "/v1/messages/count_tokens", json={"model": MODEL_NAME, "messages": [USER]}
    ) as answer:
        assert (await answer.json())["input_tokens"] < prefilled


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"messages": []}, "messages must have at least 1 item,"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role must be 'user'"),
        (
            {"messages": [{"role": "system", "content": [{"type": "image"}]}]},
            "messages[0].content[0].type must be text",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "audio"}]}]},
            "messages[0].content[0]",
        ),
        ({"messages": [{"role": "user", "content": [7]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [1]}]}]},
            "messages[0].content[0].content[0] must be an object",
        ),
        (
            {
                "messages": [
                    USER,
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}],
                    },
                ]
            },
            "to be continued it must have text alone",
        ),
        (
            {"messages": [{"role": "assistant", "content": "I am"}]},
            "messages must have another before it",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "1", "name": "f", "input": 3}],
                    },
                    USER,
                ]
            },
            "messages[0].content[0].input must be an object",
        ),
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema must be a JSON schema"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "must be 1 to 64 letters"),
        ({"tools": [{"name": "f", "input_schema": {}, "strict": 1}]}, "must be true or false"),
        (
            {"tools": [{"name": "f", "input_schema": {"not": {"type": "null"}}, "strict": True}]},
            "Unimplemented keys",
        ),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.type must be"),
        ({"tool_choice": 3}, "tool_choice.type must be"),
        ({"thinking": {"type": ["x"]}}, "thinking.type must be"),
        ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
        ({"mcp_servers": [{"url": "http://x"}]}, "mcp_servers is not supported"),
        ({"model": "claude"}, "model 'claude' does not exist"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_anthropics_form(
    rich_http: aiohttp.ClientSession, fields: dict[str, Any], says: str
) -> None:
    body = {"model": MODEL_NAME, "max_tokens": 5, "messages": [USER], **fields}
    async with rich_http.post("/v1/messages", json=body) as answer:
        said = await answer.json()
        assert answer.status == (404 if "model" in fields else 400)
        assert answer.headers["request-id"] == answer.headers["x-request-id"]
    assert said["type"] == "error"
    assert said["request_id"] == answer.headers["request-id"]
    assert said["error"]["type"] in ("invalid_request_error", "not_found_error")
    assert says in said["error"]["message"]


def _bare(block: Any) -> dict[str, Any]:
    """Without what differs between two answers."""
    fields: dict[str, Any] = block.model_dump(exclude={"id", "parsed_output"})
    return fields
