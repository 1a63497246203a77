"""Qwen3-Coder's calls: plain-text parameters become a JSON object, by their schemas."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment

from pando_worker.parsers.pieces import CallArguments, CallStart, Content, ParsedCall
from pando_worker.parsers.tools import Tool
from tests.examples import examples
from tests.worker.parsers.parsing import new_parser, parse

NUMBERED = {"type": "array", "items": {"type": "integer"}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "on": {"type": "boolean"},
        "list": NUMBERED,
        "map": {"$ref": "#/$defs/map"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "mode": {"enum": ["fast", "slow"]},
        "any": {},
    },
    "$defs": {"map": {"type": "object"}},
}
OFFERED = [Tool("run", SCHEMA, strict=False)]

# How Qwen3-Coder's own template writes a call's arguments.
TEMPLATE = Environment(autoescape=False).from_string(
    "<tool_call>\n<function={{ name }}>\n"
    "{% for key, value in arguments.items() %}<parameter={{ key }}>\n"
    "{{ value | tojson if value is mapping or (value is sequence and value is not string)"
    " else value | string }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS
        | st.sampled_from(["1", "null", "True", "{}", " x ", "a\n", "\n", "<b>", '"']),
        "count": st.integers(),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "on": st.booleans(),
        "list": st.lists(st.integers(), max_size=3),
        "map": st.dictionaries(st.sampled_from("abc"), st.integers() | st.booleans(), max_size=2),
        "maybe": st.none() | st.sampled_from(["x", "1", "[1]"]),
        "mode": st.sampled_from(["fast", "slow"]),
        "any": st.lists(st.integers(), max_size=2),
        "unknown": st.sampled_from(["7", "words", "true"]),
    },
)


def call(parameters: str) -> str:
    return f"<tool_call>\n<function=run>\n{parameters}</function>\n</tool_call>"


@given(calls=st.lists(ARGUMENTS, min_size=1, max_size=3), cut=st.integers(1, 9))
@settings(max_examples=examples(80))
def test_calls_are_read_as_the_models_template_writes_them(
    calls: list[dict[str, Any]], cut: int
) -> None:
    text = "Look:\n\n" + "\n".join(TEMPLATE.render(name="run", arguments=one) for one in calls)
    pieces = [text[at : at + cut] for at in range(0, len(text), cut)]
    parsed = parse(new_parser("qwen3_coder", offered=OFFERED), pieces)
    assert [json.loads(found.arguments) for found in parsed.calls] == calls
    assert parsed.content == "Look:"


def test_a_string_is_streamed_as_it_comes() -> None:
    parser = new_parser("qwen3_coder", offered=OFFERED)
    assert parser.push("So.\n<tool_call>\n<func") == [Content("So.")]
    assert parser.push("tion=run>\n<parameter=te") == [CallStart(0, "id0", "run")]
    assert [p.text for p in parser.push("xt>\nsay") if isinstance(p, CallArguments)] == [
        '{"text": ', '"', "say",
    ]  # fmt: skip
    assert parser.push(' "hi"\n') == [CallArguments(0, ' \\"hi\\"')]
    assert parser.push("\n</par") == [CallArguments(0, "\\n")]
    assert parser.push("ameter>\n</function>") == [CallArguments(0, '"'), CallArguments(0, "}")]
    assert parser.push("\n</tool_call>") == parser.flush() == []


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ("", {}),
        ("<parameter=text>Rome</parameter>", {"text": "Rome"}),
        ("<parameter=text>\nif a < b:\n    c()\n\n</parameter>", {"text": "if a < b:\n    c()\n"}),
        ("<parameter=on>\nTrue\n</parameter>", {"on": True}),
        ("<parameter=count>\nmany\n</parameter>", {"count": "many"}),  # the model's own fault
        ("<parameter=ratio>\nNaN\n</parameter>", {"ratio": "NaN"}),
        ("<parameter=ratio>\n2\n</parameter>", {"ratio": 2}),
        ("<parameter=maybe>\nNone\n</parameter>", {"maybe": None}),
    ],
)
def test_values_are_what_their_schemas_say(parameters: str, arguments: dict[str, Any]) -> None:
    parsed = parse(new_parser("qwen3_coder", offered=OFFERED), list(call(parameters)))
    [found] = parsed.calls
    assert json.loads(found.arguments) == arguments
    assert parsed.content == ""


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "a <tool_call> is a tag",
        "<tool_call>\n<function=run",
        "<tool_call>\n<function=two words>",
        '<tool_call>\n{"name": "run"}',
    ],
)
def test_what_is_no_call_is_given_back(text: str) -> None:
    parsed = parse(new_parser("qwen3_coder", offered=OFFERED), list(text))
    assert (parsed.calls, parsed.content) == ([], text)


def test_a_call_that_the_outputs_end_cuts_off_stays_as_far_as_it_came() -> None:
    text = call("<parameter=text>\nRome")
    cut = text[: text.index("</function>")]
    parsed = parse(new_parser("qwen3_coder", offered=OFFERED), list(cut))
    assert parsed.calls == [ParsedCall("id0", "run", '{"text": "Rome')]


def test_forgotten_closing_tags_end_a_call_all_the_same() -> None:
    text = "<tool_call>\n<function=run>\n<parameter=count>\n1\n</parameter>\n</tool_call>\nDone."
    parsed = parse(new_parser("qwen3_coder", offered=OFFERED), list(text))
    assert parsed.calls == [ParsedCall("id0", "run", '{"count": 1}')]
    assert parsed.content == "Done."
