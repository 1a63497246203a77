"""Messages are counted in bodies that are not read yet, as they are when they have been read."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pando_worker.server.jobs import long_conversations
from pando_worker.server.protocol.chats.anthropic import CountTokensRequest
from pando_worker.server.protocol.chats.chat import ChatRequest
from pando_worker.server.protocol.chats.responses import ResponsesRequest

ROLES = st.lists(st.sampled_from(["user", "assistant"]), min_size=1, max_size=12)


def turns(roles: list[str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": "x"} for role in roles]


@given(ROLES)
def test_messages_of_a_chat(roles: list[str]) -> None:
    body = {"model": "m", "messages": turns(roles)}
    read = ChatRequest.model_validate(body).messages
    assert long_conversations.of_chat(json.dumps(body).encode()) == len(read)


# One of the assistant's alone would be continued, and refused.
@given(ROLES.filter(lambda roles: "user" in roles))
def test_messages_of_anthropics_api(roles: list[str]) -> None:
    body = {"model": "m", "messages": turns(roles)}
    read = CountTokensRequest.model_validate(body).as_chat().messages
    assert long_conversations.of_messages(json.dumps(body).encode()) == len(read)


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "y"}
ITEMS = st.sampled_from([*turns(["user", "assistant", "system"]), CALL, RESULT])


@given(st.lists(ITEMS, min_size=1, max_size=12))
@example([*turns(["user", "assistant"]), CALL, *turns(["assistant"])])
def test_no_more_messages_are_counted_than_a_response_has(items: list[dict[str, Any]]) -> None:
    body = {"model": "m", "input": items}
    read = ResponsesRequest.model_validate(body).as_chat([]).messages
    counted = long_conversations.of_response(json.dumps(body).encode())
    assert counted <= len(read)
    if all(item.get("role") in ("user", "assistant") for item in items):
        assert counted == len(read)


@pytest.mark.parametrize(
    ("count", "body"),
    [
        (
            long_conversations.of_chat,
            {"messages": turns(["user"] * 9), "truncate_prompt_tokens": 5},
        ),
        (long_conversations.of_response, {"input": turns(["user"] * 9), "truncation": "auto"}),
        (long_conversations.of_chat, {}),
        (long_conversations.of_messages, {}),
        (long_conversations.of_response, {}),
    ],
)
def test_what_may_have_any_number_is_not_counted(
    count: long_conversations.Count, body: dict[str, Any]
) -> None:
    assert count(json.dumps(body).encode()) == 0
