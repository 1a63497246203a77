"""Bodies of Anthropic's /v1/messages as canonical bytes."""

import json
from typing import Any

import pytest

from pando_fleet.placement.prefix import PrefixError, chat_bytes, messages_bytes, tools_bytes

SYSTEM = "You are a guide to the west coast of Norway. " * 12
TOOLS = tools_bytes([{"name": "weather", "input_schema": {"type": "object"}}])
MARK = {"cache_control": {"type": "ephemeral"}}
PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR" * 4000},
}


THINKS = {"type": "thinking", "thinking": "They want the weather. " * 30, "signature": "abc="}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"place": "Bergen"}}
SAYS = {"type": "text", "text": "It rains. " * 30}


def _answer(anthropic: Any, *content: dict[str, Any]) -> Any:
    return anthropic.types.Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )


QUESTION = {"role": "user", "content": "What will the weather be in Bergen tomorrow?"}


@pytest.fixture
def turns(anthropic: Any) -> list[Any]:
    """A conversation in which Anthropic's library read the answers."""
    return [
        QUESTION,
        _answer(anthropic, THINKS, SAYS, CALL),
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "31 mm of rain. " * 20}, PICTURE],
                },
                {"type": "text", "text": "How sure is that? " * 20},
            ],
        },
        _answer(anthropic, SAYS),
        {"role": "user", "content": [PICTURE, {"type": "text", "text": "And this place?"}]},
    ]


def _sent(turns: list[Any], **dump: Any) -> list[Any]:
    sent = [
        turn
        if isinstance(turn, dict)
        else {"role": turn.role, "content": [block.model_dump(**dump) for block in turn.content]}
        for turn in turns
    ]
    plain: list[Any] = json.loads(json.dumps(sent))
    return plain


def _marked(turns: list[Any]) -> list[Any]:
    """With the last block marked for the cache, as clients do in every turn."""
    last = turns[-1]
    content = last["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [*turns[:-1], last | {"content": [*content[:-1], content[-1] | MARK]}]


@pytest.mark.parametrize("dump", [{}, {"exclude_none": True}])
def test_each_turn_extends_the_last_wherever_the_cache_is_marked(
    turns: list[Any], dump: dict[str, Any]
) -> None:
    whole = messages_bytes(_sent(turns), SYSTEM, TOOLS)
    for end, turn in enumerate(turns, 1):
        if isinstance(turn, dict):
            sent = _sent(turns[:end], **dump)
            assert whole.startswith(messages_bytes(sent, SYSTEM, TOOLS)), end
            assert whole.startswith(messages_bytes(_marked(sent), SYSTEM, TOOLS)), end
    assert len(whole) < 5000, "images enter as digests, in a tool's result, too"


def test_a_system_prompt_in_blocks_is_the_same_as_one_text() -> None:
    turns = [QUESTION]
    blocks = [{"type": "text", "text": SYSTEM} | MARK]
    assert messages_bytes(turns, blocks) == messages_bytes(turns, SYSTEM)
    chat = [{"role": "system", "content": SYSTEM}, *turns]
    assert messages_bytes(turns, SYSTEM) == chat_bytes(chat)


def test_what_is_said_in_a_result_is_not_what_is_said_behind_it() -> None:
    def turn(inside: list[Any], behind: list[Any]) -> bytes:
        result = {"type": "tool_result", "tool_use_id": "t", "content": inside}
        return messages_bytes([{"role": "user", "content": [result, *behind]}])

    assert turn([SAYS, SAYS], []) != turn([SAYS], [SAYS])


@pytest.mark.parametrize(
    ("messages", "system", "message"),
    [
        ("hi", None, "messages must be a list, not a string"),
        ([], 5, "system must be a string, null or a list of parts, not a number"),
        ([], ["x"], r"system\[0\] must be an object, not a string"),
        ([{"role": "user", "content": [{}]}], None, r"messages\[0\].content\[0\].type must be"),
    ],
)
def test_a_wrong_shape_is_named_with_its_place(messages: Any, system: Any, message: str) -> None:
    with pytest.raises(PrefixError, match=message):
        messages_bytes(messages, system)
