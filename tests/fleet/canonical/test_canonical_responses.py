"""Bodies of /v1/responses as canonical bytes, which equal those of the same chat."""

import json
from typing import Any

import pytest
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseReasoningItem,
)

from pando_fleet.placement.prefix import PrefixError, chat_bytes, responses_bytes, tools_bytes

INSTRUCTIONS = "You are a guide to the west coast of Norway. " * 12
TOOLS = tools_bytes(
    [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}]
)
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64," + "iVBOR" * 4000}

# An answer's `output`, which clients append to the next input as objects or dumped.
REASONING = ResponseReasoningItem.model_validate(
    {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "They want the weather."}],
        "content": [{"type": "reasoning_text", "text": "I should call. " * 30}],
        "status": "completed",
    }
)
CALL = ResponseFunctionToolCall.model_validate(
    {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": "weather",
        "arguments": '{"place": "Bergen"}',
        "status": "completed",
    }
)
SAYS = ResponseOutputMessage.model_validate(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It rains. " * 30, "annotations": []}],
    }
)
ITEMS: list[Any] = [
    {"role": "user", "content": "What will the weather be in Bergen tomorrow?"},
    REASONING,
    CALL,
    {"type": "function_call_output", "call_id": "call_1", "output": '{"rain_mm": 31}' * 20},
    SAYS,
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "And where is this? " * 20}, PICTURE],
    },
    SAYS,
    {"role": "user", "content": "Thank you."},
]


def _sent(items: list[Any], **dump: Any) -> list[Any]:
    sent = [item if isinstance(item, dict) else item.model_dump(**dump) for item in items]
    plain: list[Any] = json.loads(json.dumps(sent))
    return plain


@pytest.mark.parametrize("dump", [{}, {"exclude_none": True}, {"exclude": {"id", "status"}}])
def test_each_turn_extends_the_last_however_items_are_sent_back(dump: dict[str, Any]) -> None:
    whole = responses_bytes(_sent(ITEMS), INSTRUCTIONS, TOOLS)
    for end, item in enumerate(ITEMS, 1):
        if isinstance(item, dict):
            turn = responses_bytes(_sent(ITEMS[:end], **dump), INSTRUCTIONS, TOOLS)
            assert whole.startswith(turn), end
    assert len(whole) < 4000, "images enter as digests"


def test_what_is_said_in_words_is_the_chat_that_says_the_same() -> None:
    said = responses_bytes(_sent([ITEMS[0], SAYS, ITEMS[-1]]), INSTRUCTIONS, TOOLS)
    chat = [
        {"role": "system", "content": INSTRUCTIONS},
        ITEMS[0],
        {"role": "assistant", "content": "It rains. " * 30},
        ITEMS[-1],
    ]
    assert said == chat_bytes(chat, TOOLS)
    assert responses_bytes("hi") == chat_bytes([{"role": "user", "content": "hi"}])


def test_an_input_behind_another_response_is_another_prompt() -> None:
    prompts = [responses_bytes("yes", earlier=name) for name in (None, "resp_1", "resp_2")]
    assert len(set(prompts)) == 3
    assert prompts[1][:12] != prompts[2][:12]
    assert responses_bytes(None, earlier="resp_1")


@pytest.mark.parametrize(
    ("input", "message"),
    [
        (5, "input must be a string or a list of items, not a number"),
        (["hi"], r"input\[0\] must be an object, not a string"),
        ([{}], r"input\[0\] must have a role or a type"),
        ([{"role": "user", "content": 1}], r"input\[0\].content must be a string, null or"),
        ([{"type": "function_call_output", "output": 1}], r"input\[0\].output must be a string"),
    ],
)
def test_a_wrong_shape_is_named_with_its_place(input: Any, message: str) -> None:
    with pytest.raises(PrefixError, match=message):
        responses_bytes(input)
