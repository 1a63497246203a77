"""Calls as the models of each family write them: the texts follow their chat templates and the
vendors' guides."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pando_worker.parsers.registry import TOOL_FORMATS, reasoning_format, tool_format
from pando_worker.parsers.tools import Tool
from tests.examples import examples
from tests.worker.parsers.parsing import new_parser, parse

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
}
OFFERED = [Tool(name, SCHEMA, strict=False) for name in ("weather", "time")]
ROME, ULM = {"city": "Rome", "days": 2}, {"city": "Ulm"}


def deepseek(words: str) -> str:
    return f"<\uff5ctool\u2581{words.replace(' ', chr(0x2581))}\uff5c>"


BEGIN, END, SEP = deepseek("call begin"), deepseek("call end"), deepseek("sep")
R1_ROME = f"{BEGIN}function{SEP}weather\n```json\n{json.dumps(ROME)}\n```{END}"
R1_ULM = f"{BEGIN}function{SEP}time\n```json\n{json.dumps(ULM)}\n```{END}"
KIMI = (
    "<|tool_calls_section_begin|>"
    '<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{"city": "Rome", "days": 2}'
    "<|tool_call_end|>"
    '<|tool_call_begin|>functions.time:1<|tool_call_argument_begin|>{"city": "Ulm"}'
    "<|tool_call_end|><|tool_calls_section_end|>"
)
TWO = {
    "hermes": (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>\n'
        '<tool_call>\n{"name": "time", "arguments": {"city": "Ulm"}}\n</tool_call>'
    ),
    "qwen3_coder": (
        "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
        "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=time>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>"
    ),
    "llama3": (
        '{"name": "weather", "parameters": {"city": "Rome", "days": 2}}; '
        '{"name": "time", "parameters": {"city": "Ulm"}}'
    ),
    "llama4": (
        '<|python_start|>{"name": "weather", "parameters": {"city": "Rome", "days": 2}}; '
        '{"name": "time", "parameters": {"city": "Ulm"}}<|python_end|>'
    ),
    "pythonic": "[weather(city='Rome', days=2), time(city=\"Ulm\")]",
    "mistral": (
        '[TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 2}[TOOL_CALLS]time[ARGS]{"city": "Ulm"}'
    ),
    "deepseek_v3": f"{deepseek('calls begin')}{R1_ROME}\n{R1_ULM}{deepseek('calls end')}",
    "deepseek_v31": (
        f"{deepseek('calls begin')}{BEGIN}weather{SEP}{json.dumps(ROME)}{END}"
        f"{BEGIN}time{SEP}{json.dumps(ULM)}{END}{deepseek('calls end')}"
    ),
    "kimi_k2": KIMI,
    "glm45": (
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n"
        "<tool_call>time\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n</tool_call>"
    ),
    "granite": (
        '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome", "days": 2}},'
        ' {"name": "time", "arguments": {"city": "Ulm"}}]'
    ),
    "phi4": (
        '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome", "days": 2}},'
        ' {"name": "time", "arguments": {"city": "Ulm"}}]<|/tool_call|>'
    ),
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Rome</parameter>\n'
        '<parameter name="days">2</parameter>\n</invoke>\n'
        '<invoke name="time">\n<parameter name="city">Ulm</parameter>\n</invoke>\n'
        "</minimax:tool_call>"
    ),
    "command": (
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters":'
        ' {"city": "Rome", "days": 2}},\n    {"tool_call_id": "1", "tool_name": "time",'
        ' "parameters": {"city": "Ulm"}}\n]<|END_ACTION|>'
    ),
    "gpt_oss": (
        '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Rome",'
        ' "days": 2}<|call|><|start|>assistant<|channel|>commentary to=functions.time'
        ' <|constrain|>json<|message|>{"city": "Ulm"}<|call|>'
    ),
    "pando": (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>\n'
        '<tool_call>\n{"name": "time", "arguments": {"city": "Ulm"}}\n</tool_call>'
    ),
}
OTHER_FORMS = [
    ("phi4", 'functools[{"name": "weather", "arguments": {"city": "Rome", "days": 2}}]'),
    ("granite", '<tool_call>[{"name": "weather", "arguments": {"city": "Rome", "days": 2}}]'),
    ("pythonic", '<|python_start|>[weather(city="Rome", days=2)]<|python_end|>'),
    (
        "glm45",
        "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value>"
        "<arg_key>days</arg_key><arg_value>2</arg_value></tool_call>",
    ),
    (
        "kimi_k2",
        KIMI.partition("<|tool_call_begin|>functions.time")[0].removeprefix(
            "<|tool_calls_section_begin|>"
        ),
    ),
    ("deepseek_v31", R1_ROME),
    ("gpt_oss", "<|channel|>commentary to=functions.weather<|message|>" + json.dumps(ROME)),
]


def test_every_format_has_its_text_here() -> None:
    assert TWO.keys() == TOOL_FORMATS.keys()


@pytest.mark.parametrize("tools", sorted(TWO))
@given(cuts=st.lists(st.integers(0, 400), max_size=8))
@example(cuts=[140])  # within Llama 4's closing token
@settings(max_examples=examples(25))
def test_both_calls_are_read_however_the_text_is_cut(tools: str, cuts: list[int]) -> None:
    # Llama's calls without a token must begin the output.
    before = "" if tools in ("llama3", "pythonic") else "One moment.\n"
    text = before + TWO[tools]
    places = sorted({min(cut, len(text)) for cut in cuts})
    chunks = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    parsed = parse_any(new_parser(tools, offered=OFFERED), chunks)
    assert [(name, json.loads(arguments)) for name, arguments in parsed[1]] == [
        ("weather", ROME),
        ("time", ULM),
    ]
    assert parsed[0] == before.strip()


@pytest.mark.parametrize("tools", sorted(TWO))
def test_a_call_whose_arguments_the_outputs_end_cuts_leaves_no_text(tools: str) -> None:
    text = TWO[tools].partition("Rome")[0] + "Ro"
    content, calls = parse_any(new_parser(tools, offered=OFFERED), list(text))
    assert content == ""
    assert [name for name, _ in calls] == ["weather"]


def parse_any(parser: Any, chunks: list[str]) -> tuple[str, list[tuple[str, str]]]:
    """Content and calls, whatever the ids."""
    content, calls = "", []
    for chunk in [*chunks, None]:
        for piece in parser.flush() if chunk is None else parser.push(chunk):
            match type(piece).__name__:
                case "Content":
                    content += piece.text
                case "CallStart":
                    calls.append((piece.name, ""))
                case "CallArguments":
                    calls[-1] = (calls[-1][0], calls[-1][1] + piece.text)
    return content, calls


@pytest.mark.parametrize(("tools", "text"), OTHER_FORMS)
def test_the_same_family_writes_it_otherwise(tools: str, text: str) -> None:
    content, [(name, arguments)] = parse_any(new_parser(tools, offered=OFFERED), list(text))
    assert (content, name, json.loads(arguments)) == ("", "weather", ROME)


def test_kimis_own_ids_are_kept_since_later_messages_need_them() -> None:
    parser = new_parser("kimi_k2")
    starts = [piece for piece in parser.push(KIMI) if type(piece).__name__ == "CallStart"]
    assert [piece.id for piece in starts] == ["functions.weather:0", "functions.time:1"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("'it\\'s'", "it's"),
        ('"a, b) ]"', "a, b) ]"),
        ("[1, {'a': None}]", [1, {"a": None}]),
        ("True", True),
        ("false", False),
        ("-1.5", -1.5),
    ],
)
def test_pythons_values_become_json(written: str, read: object) -> None:
    text = f"[weather(x={written}), time()]"
    _, calls = parse_any(new_parser("pythonic"), list(text))
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [
        ("weather", {"x": read}),
        ("time", {}),
    ]


def test_a_value_that_the_outputs_end_cuts_is_left_out() -> None:
    _, calls = parse_any(new_parser("pythonic"), list('[weather(x=1, y="Ro'))
    assert calls == [("weather", '{"x": 1, "y": ')]


@pytest.mark.parametrize(
    ("tools", "text"),
    [
        ("pythonic", "[weather] is nice"),
        ("pythonic", "[link(x)](y)"),
        ("granite", "<|tool_call|>nothing"),
        ("phi4", "from functools import cache"),
        ("kimi_k2", "<|tool_calls_section_begin|>nothing"),
        ("deepseek_v3", f"{BEGIN}function{SEP}weather"),
        ("glm45", "<tool_call>two words</tool_call>"),
        ("minimax_m2", "<minimax:tool_call>\nno"),
        ("command", "<|START_ACTION|>{}"),
    ],
)
def test_what_is_no_call_is_given_back(tools: str, text: str) -> None:
    assert parse_any(new_parser(tools, offered=OFFERED), list(text)) == (text, [])


TEMPLATES = {
    "deepseek_v3": f"{{% if tools %}} {BEGIN}' + tool['type'] + '{SEP}' ... '```json'",
    "deepseek_v31": f"{{% if tools %}} {BEGIN}' + tool['function']['name'] + '{SEP}'",
    "kimi_k2": "{%- if tools -%}<|im_system|>tool_declare ... <|tool_call_begin|>",
    "glm45": "{%- if tools -%} <tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>",
    "minimax_m2": '{%- if tools -%} toolcall_begin = "<minimax:tool_call>" ... <invoke name=',
    "granite": "<|start_of_role|> {%- if tools %} ... <|tool_call|>",
    "phi4": "'tools' in message ... '<|tool|>' + message['tools'] + '<|/tool|>'",
    "command": "{% if tools %} <|START_ACTION|>",
    "gpt_oss": "{%- if tools -%} <|channel|>analysis ... to=functions.",
    "llama4": '<|header_start|> {%- if tools %} {"name": function name, "parameters": ...}',
    "pythonic": "<|header_start|> {%- if tools %} [func_name1(params_name1=params_value1)]",
}


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_the_template_shows_the_format(name: str) -> None:
    assert tool_format("auto", TEMPLATES[name]) is TOOL_FORMATS[name]


def test_a_template_that_shows_calls_but_takes_no_tools_has_pandos_form() -> None:
    """R1's template writes earlier calls, but has no place for the tools."""
    assert tool_format("auto", f"message['tool_calls'] {BEGIN}```json").name == "pando"


# The channels of gpt-oss


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "calls"),
    [
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi!",
            "Hm.",
            "Hi!",
            [],
        ),
        ("<|channel|>final<|message|>Hi!<|return|>", "", "Hi!", []),
        (
            "<|channel|>analysis<|message|>Call.<|end|><|start|>assistant<|channel|>commentary"
            ' to=functions.weather <|constrain|>json<|message|>{"city": "Ulm"}<|call|>',
            "Call.",
            "",
            [("weather", '{"city": "Ulm"}')],
        ),
        (
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.weather"
            '<|channel|>commentary <|constrain|>json<|message|>{"city": "Ulm"}<|call|>',
            "",
            "I look.",
            [("weather", '{"city": "Ulm"}')],
        ),
        ("No channel at all.", "", "No channel at all.", []),
    ],
)
def test_channels_become_reasoning_content_and_calls(
    text: str, reasoning: str, content: str, calls: list[tuple[str, str]]
) -> None:
    for chunks in ([text], list(text)):
        parsed = parse(new_parser("gpt_oss", "gpt_oss"), chunks)
        assert (parsed.reasoning, parsed.content) == (reasoning, content)
        assert [(call.name, call.arguments) for call in parsed.calls] == calls


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("command", "<|START_THINKING|>Hm.<|END_THINKING|>Yes."),
        ("granite", "Here is my thought process: Hm. Here is my response: Yes."),
        ("mistral", "[THINK]Hm.[/THINK]Yes."),
    ],
)
def test_other_tags_of_reasoning(name: str, text: str) -> None:
    parsed = parse(new_parser(None, name), list(text))
    assert (parsed.reasoning, parsed.content) == ("Hm.", "Yes.")
    assert reasoning_format("auto", text) is not None
