"""Properties of every format, for any text cut in any way."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.parsers.registry import TOOL_FORMATS
from tests.examples import examples
from tests.worker.parsers.parsing import new_parser, parse

FORMATS = pytest.mark.parametrize("tools", sorted(TOOL_FORMATS))

FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<tool", "_call>", "<think>", "</think>", "</th", "<"),
        *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL", "[", "]", "<|python_tag|>", "<|py", ";"),
        *("<function=", "weather", ">", "<parameter=", "city", "</parameter>", "</function>"),
        *('{"name": "weather", "arguments": {"city": "Rome"}}', '"arguments": {', '"name": "time"'),
        *('{"name": "time", "parameters": {}}', '{"arguments": {"a": [1]}, "name": "time"}'),
        *('{"name": "no tool", "parameters": {}}', '{"city": 1}', '"parameters":', '"id": "x",'),
        *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<minimax:tool_call>"),
        *(
            '<invoke name="weather">',
            '<parameter name="city">',
            "</invoke>",
            "</minimax:tool_call>",
        ),
        *(
            "<|tool_call|>",
            "<|/tool_call|>",
            "functools",
            "<|START_ACTION|>",
            '"tool_name": "time",',
        ),
        *("<|tool_call_begin|>", "functions.time:0", "<|tool_call_argument_begin|>", "```"),
        *("<|channel|>", "commentary to=functions.time", "analysis", "<|message|>", "<|end|>"),
        *("<|python_start|>", "time(", "x=", "'a'", ")", "<|start|>assistant", "<|call|>"),
        *(f"<\uff5ctool\u2581{words}\uff5c>" for words in ("call\u2581begin", "sep")),
        *("{", "}", '"', "\\", ",", ":", "a", "text ", " ", "\n", "\n\n", "é", "🙂", "9"),
    ]
)
TEXTS = st.lists(FRAGMENTS, max_size=14).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(max_size=4), JSON, max_size=3)
CALLS = st.lists(st.tuples(st.sampled_from(["weather", "time"]), ARGUMENTS), min_size=1, max_size=3)


def cut(data: st.DataObject, text: str) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@FORMATS
@pytest.mark.parametrize("reasoning", [None, "qwen3", "gpt_oss"])
@given(text=TEXTS, data=st.data())
@settings(max_examples=examples(50))
def test_the_result_is_the_same_however_the_text_is_cut(
    tools: str, reasoning: str | None, text: str, data: st.DataObject
) -> None:
    whole = parse(new_parser(tools, reasoning), [text])
    assert parse(new_parser(tools, reasoning), cut(data, text)) == whole
    assert parse(new_parser(tools, reasoning), list(text)) == whole


@FORMATS
@given(text=TEXTS)
@settings(max_examples=examples(80))
def test_text_without_a_call_is_content_as_it_stands(tools: str, text: str) -> None:
    parsed = parse(new_parser(tools), list(text))
    if not parsed.calls:
        assert parsed.content == text


@FORMATS
@given(text=TEXTS)
@settings(max_examples=examples(50))
def test_content_beside_calls_is_in_the_text(tools: str, text: str) -> None:
    """Nothing is invented, and only the calls are removed."""
    rest = iter(text)
    assert all(char in rest for char in parse(new_parser(tools), [text]).content)


@given(calls=CALLS, before=st.sampled_from(["", "I will look.", "a < b"]), data=st.data())
@settings(max_examples=examples(30))
@pytest.mark.parametrize("form", ["hermes", "mistral", "mistral newer", "llama3"])
def test_calls_are_read_as_they_were_written(
    form: str, calls: list[tuple[str, dict[str, Any]]], before: str, data: st.DataObject
) -> None:
    ascii_only = data.draw(st.booleans())
    indent = data.draw(st.sampled_from([None, 2]))

    def dumped(value: object) -> str:
        return json.dumps(value, ensure_ascii=ascii_only, indent=indent)

    key = "parameters" if form == "llama3" else "arguments"
    objects = [dumped({"name": name, key: arguments}) for name, arguments in calls]
    text = {
        "hermes": "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in objects),
        "mistral": f"[TOOL_CALLS] [{', '.join(objects)}]",
        "mistral newer": "".join(f"[TOOL_CALLS]{n}[ARGS]{dumped(a)}" for n, a in calls),
        "llama3": ("<|python_tag|>" if before else "") + "; ".join(objects),
    }[form]
    separator = data.draw(st.sampled_from(["", "\n", "\n\n"])) if before else ""
    parsed = parse(new_parser(form.split()[0]), cut(data, before + separator + text + "\n"))
    assert [(call.name, json.loads(call.arguments)) for call in parsed.calls] == calls
    assert parsed.content == before
