"""A coding agent as Claude Code plays it: a long system prompt, many tools, parallel results."""

from typing import Any

import pytest
from anthropic import Anthropic
from anthropic.types.beta import BetaMessage, BetaToolUseBlock

from tests.e2e.up_process import UpProcess

pytestmark = pytest.mark.e2e

TURNS = 3
CACHED = {"cache_control": {"type": "ephemeral"}}
SYSTEM: list[Any] = [
    {"type": "text", "text": "You are a coding agent at a command line.", **CACHED},
    {
        "type": "text",
        "text": "\n".join(
            f"{number}. Before you change module {number}, read it, then run its tests."
            for number in range(1, 41)
        ),
        **CACHED,
    },
]
TOOLS: list[Any] = [
    {
        "name": f"{verb}_{noun}",
        "description": f"Use this to {verb} a {noun} of the project.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string", "enum": ["a.py", "b.py"]}},
            "required": ["path"],
            "additionalProperties": False,
        },
    }
    for verb in ("read", "write", "search", "delete")
    for noun in ("file", "folder", "test")
]
TOOLS[-1] |= CACHED


def use(call_id: str, name: str, path: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"path": path}}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text}


RESUMED: list[Any] = [
    {"role": "user", "content": [{"type": "text", "text": "Read a.py and b.py.", **CACHED}]},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I read both."},
            use("toolu_1", "read_file", "a.py"),
            use("toolu_2", "read_file", "b.py"),
        ],
    },
    {
        "role": "user",
        "content": [
            result("toolu_1", "x = 1"),
            {**result("toolu_2", "No such file."), "is_error": True},
            {"type": "text", "text": "Then write b.py."},
        ],
    },
]
"""A session that goes on after two calls at once."""


def ask(client: Anthropic, messages: list[Any]) -> BetaMessage:
    """One streamed turn, with the fields and the beta header that Claude Code sends."""
    with client.beta.messages.stream(
        model="smollm2",
        max_tokens=200,
        system=SYSTEM,
        tools=TOOLS,
        tool_choice={"type": "any"},
        messages=messages,
        metadata={"user_id": "user_1_session_1"},
        betas=["claude-code-20250219"],
        extra_body={"temperature": 0},
    ) as stream:
        return stream.get_final_message()


def calls_of(answer: BetaMessage) -> list[BetaToolUseBlock]:
    return [block for block in answer.content if block.type == "tool_use"]


def test_an_agents_cached_tokens_grow_with_every_turn(smollm2: UpProcess) -> None:
    names = {tool["name"] for tool in TOOLS}
    messages = [*RESUMED]
    answers: list[BetaMessage] = []
    with Anthropic(base_url=smollm2.url, api_key="none", max_retries=0, timeout=120) as client:
        for _ in range(TURNS):
            answer = ask(client, messages)
            calls = calls_of(answer)
            assert answer.stop_reason == "tool_use" and calls
            for call in calls:
                assert call.name in names
                assert call.input in ({"path": "a.py"}, {"path": "b.py"})
            answers.append(answer)
            messages += [
                {"role": "assistant", "content": answer.content},
                {"role": "user", "content": [result(call.id, "x = 1\n" * 8) for call in calls]},
            ]
    used = [answer.usage for answer in answers]
    cached = [usage.cache_read_input_tokens or 0 for usage in used]
    prompts = [usage.input_tokens + read for usage, read in zip(used, cached, strict=True)]
    # A turn finds all of the prompt before it, and the answer but for a part of a page.
    assert cached[1] >= prompts[0] and cached[2] >= prompts[1] > prompts[0] > 1000
    ids = [call.id for answer in answers for call in calls_of(answer)]
    assert len(ids) == len(set(ids))
