"""Chats as canonical bytes: equal for equal meaning, and extended by each next turn."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from pando_fleet.placement.prefix import PrefixError, chat_bytes, chunk_keys, seed, tools_bytes

# Few letters, so that contents can be confused, and characters that look like a border.
_TEXT = st.text(st.sampled_from('ab\xff\xfe\xfd\xfc\xfb\x00"{}:,'), max_size=4)
_ROLE = st.sampled_from(["user", "a", "ab", ""])
_PART = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, _TEXT),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, _TEXT),
    st.builds(lambda text: {"type": "refusal", "refusal": text}, _TEXT),
)
_CALL = st.builds(
    lambda name, arguments: {
        "id": "c",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    },
    _TEXT,
    _TEXT,
)
_MESSAGE = st.fixed_dictionaries(
    {"role": _ROLE},
    optional={
        "content": st.one_of(st.none(), _TEXT, st.lists(_PART, max_size=3)),
        "name": st.none() | _TEXT,
        "tool_call_id": _TEXT,
        "reasoning_content": st.none() | _TEXT,
        "tool_calls": st.none() | st.lists(_CALL, max_size=2),
        "annotations": st.none() | st.just([{"type": "url_citation"}]),
        "refusal": st.none() | _TEXT,
    },
)
_MESSAGES = st.lists(_MESSAGE, max_size=4)
_TOOLS = st.none() | st.lists(st.fixed_dictionaries({"name": _TEXT}), max_size=2)

Messages = list[dict[str, Any]]


def _bytes(messages: Messages, tools: list[Any] | None = None) -> bytes:
    return chat_bytes(messages, tools_bytes(tools))


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def _meaning(messages: Messages, tools: list[Any] | None) -> object:
    """A prompt's meaning, without differences of spelling."""
    said = []
    for message in messages:
        content = message.get("content") or []
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        parts = [_without_empty(part) for part in content if part != {"type": "text", "text": ""}]
        rest = {k: v for k, v in message.items() if k not in ("content", "annotations")}
        said.append((parts, _without_empty(rest), message["role"]))
    return tools or [], said


@given(_MESSAGES, _TOOLS, _MESSAGES, _TOOLS)
def test_bytes_are_equal_exactly_where_the_prompts_say_the_same(
    first: Messages, first_tools: list[Any] | None, second: Messages, second_tools: list[Any] | None
) -> None:
    same_bytes = _bytes(first, first_tools) == _bytes(second, second_tools)
    assert same_bytes == (_meaning(first, first_tools) == _meaning(second, second_tools))


@given(_MESSAGES, _TOOLS, _MESSAGES)
def test_a_longer_conversation_extends_the_bytes_of_the_shorter(
    messages: Messages, tools: list[Any] | None, more: Messages
) -> None:
    assert _bytes(messages + more, tools).startswith(_bytes(messages, tools))


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_an_answer_that_goes_on_extends_the_bytes(text: str, more: str, reasoning: str) -> None:
    """Also after reasoning: a continuation of a partial answer keeps its prefix."""
    short, long = (
        [{"role": "assistant", "reasoning_content": reasoning, "content": t}]
        for t in (text, text + more)
    )
    assert _bytes(long).startswith(_bytes(short))


WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place, today and for the next days.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["place"],
        },
    },
}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"place": "Bergen", "days": 2}'},
        }
    ],
}
ANSWERS = {"role": "assistant", "content": "It rains, as ever. " * 20}
PICTURE = "data:image/png;base64," + "iVBORw0KGgo" * 4000
CONVERSATION: Messages = [
    {"role": "system", "content": "You are a guide to the west coast of Norway. " * 12},
    {"role": "user", "content": "What will the weather be in Bergen tomorrow?"},
    CALLS,
    {"role": "tool", "tool_call_id": "call_1", "content": '{"rain_mm": 31, "wind_ms": 12}' * 9},
    ANSWERS,
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "And where was this taken? " * 20},
            {"type": "image_url", "image_url": {"url": PICTURE, "detail": "high"}},
            {"type": "text", "text": "It was a Sunday. " * 20},
        ],
    },
    ANSWERS,
    {
        "role": "user",
        "content": [
            {"type": "input_audio", "input_audio": {"data": "UklGR" * 5000, "format": "wav"}},
            {"type": "text", "text": "What does she say? " * 20},
        ],
    },
    ANSWERS,
]


def _as_sent(message: dict[str, Any], spelling: str) -> dict[str, Any]:
    """An assistant's turn as clients send it back, in the spelling of OpenAI's own library."""
    if message["role"] != "assistant" or spelling == "plain":
        return message
    answer = ChatCompletionMessage.model_validate(message)
    if spelling == "all fields":  # refusal, annotations, audio, function_call: null
        return answer.model_dump()
    if spelling == "as received":
        return answer.to_dict()
    content = message["content"] or ""  # other libraries'
    return message | {"content": content, "tool_calls": message.get("tool_calls", [])}


@pytest.mark.parametrize("spelling", ["plain", "all fields", "as received", "empty lists"])
def test_each_turn_of_a_real_conversation_extends_the_chain_of_the_last(spelling: str) -> None:
    """With tools, calls and their results, images, audio and several text parts, for any spelling
    of the answers that the client sends back."""
    whole = _bytes(CONVERSATION, [WEATHER])
    start = seed("m")
    before = b""
    for end, message in enumerate(CONVERSATION, 1):
        if message["role"] == "assistant":
            continue
        turn = [_as_sent(one, spelling) for one in CONVERSATION[:end]]
        data = _bytes(json.loads(json.dumps(turn)), [WEATHER])
        assert whole.startswith(data)
        keys = chunk_keys(data, start)
        assert keys.startswith(before)
        before = keys
    assert len(before) > 8 * 8
    assert len(whole) < 6000, "images and audio enter as digests"


def test_prompts_that_differ_in_any_place_part_at_that_place() -> None:
    """Matching the wrong text, such as only the last message, would pair them."""
    for index, message in enumerate(CONVERSATION):
        other = [*CONVERSATION]
        other[index] = message | {"content": [{"type": "text", "text": "something else"}]}
        mine, theirs = _bytes(CONVERSATION), _bytes(other)
        before = _bytes(CONVERSATION[:index])
        assert mine.startswith(before)
        assert theirs.startswith(before)
        assert mine[len(before) :][:64] != theirs[len(before) :][:64]
    assert _bytes(CONVERSATION, [WEATHER])[:64] != _bytes(CONVERSATION)[:64]


def test_an_image_enters_as_a_digest_whatever_its_size() -> None:
    def image(data: str) -> Messages:
        url = {"url": f"data:image/png;base64,{data}"}
        return [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]

    assert len(_bytes(image("A" * 100_000))) < 100
    assert _bytes(image("A" * 1000)) != _bytes(image("A" * 999 + "B"))


def test_a_mark_for_the_cache_says_nothing() -> None:
    """Some clients move it to the last message with every turn."""
    mark = {"cache_control": {"type": "ephemeral"}}
    text, picture = {"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}
    plain: Messages = [{"role": "user", "content": [text, picture]}]
    marked: Messages = [{"role": "user", "content": [text | mark, picture | mark]} | mark]
    assert _bytes(marked, [WEATHER | mark]) == _bytes(plain, [WEATHER])


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("hi", "messages must be a list, not a string"),
        ([1], r"messages\[0\] must be an object, not a number"),
        ([{"content": "x"}], r"messages\[0\].role must be a string, not null"),
        ([{"role": "user", "content": 5}], r"messages\[0\].content must be .*, not a number"),
        ([{"role": "u", "content": ["x"]}], r"content\[0\] must be an object, not a string"),
        ([{"role": "u", "content": [{"text": "x"}]}], r"content\[0\].type must be a string"),
        ([{"role": "u", "content": [{"type": "text"}]}], r"\[0\].text must be a string"),
    ],
)
def test_a_wrong_shape_is_named_with_its_place(messages: Any, message: str) -> None:
    with pytest.raises(PrefixError, match=message):
        chat_bytes(messages)


def test_tools_are_a_list() -> None:
    with pytest.raises(PrefixError, match="tools must be a list, not an object"):
        tools_bytes({"name": "f"})
