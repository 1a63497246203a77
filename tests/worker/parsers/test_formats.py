"""Single texts in each tool format, and their meaning."""

import time

import pytest

from pando_worker.parsers.pieces import CallArguments, CallStart, Content, ParsedCall
from pando_worker.parsers.registry import TOOL_FORMATS
from tests.worker.parsers.parsing import new_parser, parse

ROME = '{"city": "Rome"}'


def test_arguments_are_streamed_as_they_come() -> None:
    parser = new_parser("hermes")
    assert parser.push("Let me see.\n<tool") == [Content("Let me see.")]
    assert parser.push('_call>\n{"name": "weather", "arg') == []
    assert parser.push('uments": {"ci') == [
        CallStart(0, "id0", "weather"),
        CallArguments(0, '{"ci'),
    ]
    assert parser.push('ty": "Ro') == [CallArguments(0, 'ty": "Ro')]
    assert parser.push('me"}}\n</tool_call>') == [CallArguments(0, 'me"}')]
    assert parser.flush() == []


def test_text_that_only_looks_like_a_marker_is_held_back_no_longer_than_needed() -> None:
    parser = new_parser("hermes")
    assert parser.push("a <tool") == [Content("a")]
    assert parser.push("box> b") == [Content(" <toolbox> b")]


@pytest.mark.parametrize(
    ("tools", "text", "content"),
    [
        ("hermes", '<tool_call>{"name": "weather", "arg', None),
        ("hermes", "x <tool_call> is a tag", None),
        ("hermes", '<tool_call>{"city": "Rome"}</tool_call>', None),
        ("hermes", '<tool_call>{"name": 1, "arguments": {}}</tool_call>', None),
        ("hermes", '<tool_call>{"name": "weather", "arguments": []}</tool_call>', None),
        ("llama3", '{"name": "Ada", "parameters": {}}', None),
        ("llama3", '{"name": "weather", "nothing": {}}', None),
        ("llama3", 'Sure: {"name": "weather", "parameters": {}}', None),
        ("llama3", '<|python_tag|>brave_search.call(query="x")', None),
        ("mistral", "[TOOL_CALLS] []", None),
        ("mistral", "[TOOL_CALLS]weather please", None),
        ("mistral", "see [TOOL_CALLS] {}", None),
        ("mistral", "[TOOL_CALLS]weather[ARGS]", None),
    ],
)
def test_what_is_no_call_is_given_back(tools: str, text: str, content: str | None) -> None:
    parsed = parse(new_parser(tools), list(text))
    assert parsed.calls == []
    assert parsed.content == (text if content is None else content)


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ("hermes", '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {"city": "Rome"}, "name": "weather"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}'),
        (
            "hermes",
            r'<tool_call>{"name": "weather", "arguments": "{\"city\": \"Rome\"}"}</tool_call>',
        ),
        (
            "hermes",
            '<tool_call>{"id": "1", "name": "weather", "arguments": {"city": "Rome"}}</tool_call>',
        ),
        ("llama3", '\n{"name": "weather", "parameters": {"city": "Rome"}}'),
        ("llama3", '<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}'),
        ("llama3", '{"type": "function", "name": "weather", "parameters": {"city": "Rome"}}'),
        ("mistral", '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Rome"}}]'),
        ("mistral", '[TOOL_CALLS]weather[ARGS]{"city": "Rome"}'),
        ("mistral", '[TOOL_CALLS]weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "Rome"}'),
        ("mistral", '[TOOL_CALLS]weather{"city": "Rome"}'),
    ],
)
def test_a_call_in_every_form_that_models_write(tools: str, text: str) -> None:
    parsed = parse(new_parser(tools), list(text))
    assert parsed.calls == [ParsedCall("id0", "weather", ROME)]
    assert parsed.content == ""


def test_arguments_that_the_outputs_end_cut_off_stay_as_far_as_they_came() -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"city": "Ro'
    assert parse(new_parser("hermes"), [text]).calls == [
        ParsedCall("id0", "weather", '{"city": "Ro')
    ]


def test_text_after_a_call_is_content() -> None:
    text = '<tool_call>{"name": "time", "arguments": {}}</tool_call>\n\nThat was it. '
    parsed = parse(new_parser("hermes"), list(text))
    assert parsed.content == "That was it. "
    assert len(parsed.calls) == 1


def test_a_call_after_what_looked_like_one_is_found() -> None:
    text = '<tool_call><tool_call>{"name": "time", "arguments": {}}</tool_call>'
    parsed = parse(new_parser("hermes"), list(text))
    assert parsed.content == "<tool_call>"
    assert parsed.calls == [ParsedCall("id0", "time", "{}")]


@pytest.mark.parametrize("tools", sorted(TOOL_FORMATS))
@pytest.mark.parametrize(
    "fragment",
    [
        '<tool_call>{"name": "a",',
        "[TOOL_CALLS][{",
        "[TOOL_CALLS]a",
        '{"name": "time", "x": "',
        "\n",
    ],
)
def test_reading_takes_time_in_proportion_to_the_text(tools: str, fragment: str) -> None:
    """A client can make a model write anything; none of it may delay other requests."""

    def seconds(count: int) -> float:
        parser = new_parser(tools)
        started = time.process_time()
        for _ in range(count):
            parser.push(fragment)
        parser.flush()
        return time.process_time() - started

    assert seconds(16_000) < 90 * max(seconds(1_000), 0.005)  # 256 times, were it quadratic
