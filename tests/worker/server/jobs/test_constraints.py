"""Grammars from a request's fields: which outputs fit, and which requests are refused.

The compiled grammar decides, byte by byte, whether a text fits.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer

from pando_worker.grammar.limits import MAX_GRAMMAR_CHARS
from pando_worker.parsers.families.pando import MAX_CALLS
from pando_worker.parsers.pieces import ParsedCall
from pando_worker.parsers.reasoning import Start
from pando_worker.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from pando_worker.parsers.tools import Tool, read_tool_use
from pando_worker.server.errors import ApiError
from pando_worker.server.jobs.constraints import grammar_of
from tests.worker.parsers.parsing import new_parser, parse
from tests.worker.parsers.test_families import OFFERED, ROME, TWO, ULM, parse_any

BYTES = LLTokenizer("byte")


def fits(grammar: str | None, text: str) -> bool:
    """Whether the grammar allows the text as a complete output."""
    assert grammar is not None
    matcher = LLMatcher(BYTES, grammar)
    assert not matcher.is_error(), matcher.get_error()
    return matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and bool(
        matcher.is_accepting()
    )


def schema_format(schema: dict[str, Any], *, strict: bool | None = None) -> dict[str, Any]:
    named = {"name": "answer", "schema": schema}
    return {
        "type": "json_schema",
        "json_schema": named if strict is None else named | {"strict": strict},
    }


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("fields", "good", "bad"),
    [
        ({"response_format": {"type": "json_object"}}, '{"a": [1]}', "[1]"),
        ({"response_format": schema_format(POINT)}, '{"x": 1}', '{"x": "1"}'),
        ({"response_format": schema_format(POINT, strict=True)}, '{"x": 1}', '{\n"x": 1}'),
        ({"json_schema": json.dumps(POINT)}, '{"x": 1}', "{}"),
        ({"guided_json": POINT}, '{"x": 1}', "{}"),
        ({"structured_outputs": {"json": POINT}}, '{"x": 1}', "{}"),
        ({"structured_outputs": {"json_object": True}}, "{}", "[]"),
        ({"regex": r"[a-c]+/\d"}, "abc/1", "abc/"),
        ({"guided_regex": "a|b"}, "b", "ab"),
        ({"structured_outputs": {"regex": "a|b"}}, "b", "ab"),
        ({"guided_choice": ["yes", "no\n", 'it\'s "é"']}, 'it\'s "é"', "it"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "no", "yesno"),
        ({"ebnf": 'root ::= "a" b*\nb ::= [0-9] | "(" b ")"'}, "a1((2))", "a(1"),
        ({"guided_grammar": 'start: "a" start "b" | "-"'}, "aa-bb", "aa-b"),
        ({"structured_outputs": {"grammar": 'root ::= "x"+'}}, "xxx", ""),
    ],
)
def test_every_fields_grammar_takes_what_it_asks_for(
    fields: dict[str, Any], good: str, bad: str
) -> None:
    grammar = grammar_of(**fields)
    assert fits(grammar, good)
    assert not fits(grammar, bad)


@pytest.mark.parametrize(
    "fields", [{}, {"response_format": {"type": "text"}}, {"tool_use": read_tool_use(None)}]
)
def test_a_request_that_asks_for_nothing_has_no_grammar(fields: dict[str, Any]) -> None:
    assert grammar_of(**fields) is None


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"regex": "("}, "regex", "unclosed group"),
        ({"regex": ""}, "regex", "non-empty"),
        ({"regex": 1}, "regex", "string"),
        ({"regex": "(?=a)b"}, "regex", "look-around"),
        ({"regex": "a" * (MAX_GRAMMAR_CHARS + 1)}, "regex", "at most"),
        ({"guided_regex": "\ud800"}, "guided_regex", "Unicode"),
        ({"ebnf": "root = x"}, "ebnf", "line 1"),
        ({"json_schema": "{"}, "json_schema", "not JSON"),
        ({"json_schema": "[" * 100_000}, "json_schema", "not JSON"),
        ({"json_schema": "[]"}, "json_schema", "must be a JSON schema"),
        ({"guided_json": {"type": "text"}}, "guided_json", "invalid type"),
        ({"guided_choice": []}, "guided_choice", "at least one"),
        ({"guided_choice": ["a"] * 1025}, "guided_choice", "at most 1024"),
        ({"structured_outputs": {}}, "structured_outputs", "must have one of"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs", "one of"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs", "one of"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs", "unclosed"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "json_schema"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "must be {name",
        ),
        (
            {"response_format": schema_format({"not": {"type": "null"}}, strict=True)},
            "response_format",
            "unimplemented keys",
        ),
        ({"regex": "a", "ebnf": 'root ::= "b"'}, "ebnf", "regex and ebnf"),
    ],
)
def test_what_cannot_be_is_refused_with_its_fields_name(
    fields: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        grammar_of(**fields)
    assert refused.value.status == 400
    assert refused.value.param == param


@pytest.mark.parametrize(
    "terminals",
    [
        "T: /a+/ & /b+/",
        "T: (/a+/ /[&]/) & ~/b+/",
        "T: ~/a+/\nU: ~(T | /b+/)",  # both: neither
        'T: "\\"" & /"/',
        'T: <a"b> & <c"d>',  # special tokens, no string
        "T: /a/ // a comment's \"\n & /b/",
    ],
)
def test_intersections_are_refused_since_nothing_bounds_their_cost(terminals: str) -> None:
    with pytest.raises(ApiError, match=r"guided_grammar has an intersection") as refused:
        grammar_of(guided_grammar=f"start: T\n{terminals}")
    assert refused.value.param == "guided_grammar"


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('start: T\nT: ~/(?s:.*)end(?s:.*)/ "end"', "so end", "so end end"),
        ('start: T~2\nT: "&" | "~"', "&~", "&"),
        ("start: T ~ 1..2\nT: /[&~]|a/ // & ~ ~", "a&", "a&~"),
        ('root ::= "&" [~]', "&~", "&"),
    ],
)
def test_one_complement_repetition_and_the_signs_as_text_are_allowed(
    grammar: str, good: str, bad: str
) -> None:
    made = grammar_of(guided_grammar=grammar)
    assert fits(made, good)
    assert not fits(made, bad)


def test_without_strict_what_a_schema_cannot_express_is_ignored() -> None:
    assert fits(grammar_of(response_format=schema_format({"not": {"type": "null"}})), '"a"')


# Tools


def function(name: str, parameters: object = None, strict: bool | None = None) -> dict[str, Any]:
    spec = {"name": name, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": {k: v for k, v in spec.items() if v is not None}}


REFERRING = {
    "type": "object",
    "properties": {"at": {"$ref": "#/$defs/point"}},
    "required": ["at"],
    "additionalProperties": False,
    "$defs": {"point": POINT},
}
TOOLS = [
    function("weather", REFERRING, strict=True),
    function("weathers"),
    function("time", {"type": "object"}),
]


def xml_call(name: str, arguments: dict[str, Any]) -> str:
    """A call in the form of Qwen3-Coder's chat template."""
    values = {k: v if isinstance(v, str) else json.dumps(v) for k, v in arguments.items()}
    parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def calls_text(tools: str, *calls: tuple[str, str]) -> str:
    key = "parameters" if tools == "llama3" else "arguments"
    objects = [f'{{"name": "{name}", "{key}": {arguments}}}' for name, arguments in calls]
    if tools == "qwen3_coder":
        return "\n".join(xml_call(name, json.loads(arguments)) for name, arguments in calls)
    hermes = "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in objects)
    return {
        "hermes": hermes,
        "pando": hermes,
        "llama3": "".join(objects),
        "mistral": f"[TOOL_CALLS] [{', '.join(objects)}]",
    }[tools]


def tool_grammar(tools: str, choice: object, **more: Any) -> str | None:
    use = read_tool_use(more.pop("offered", TOOLS), choice, more.pop("parallel", None))
    return grammar_of(tool_use=use, tool_format=TOOL_FORMATS[tools], **more)


TRAINED = pytest.mark.parametrize("tools", ["hermes", "llama3", "mistral", "qwen3_coder"])
FORMATS = pytest.mark.parametrize("tools", ["hermes", "llama3", "mistral", "pando", "qwen3_coder"])
GOOD = ("weather", '{"at": {"x": 1}}')
WRONG = ("weather", '{"at": {"x": "1"}}')
OTHER = ("time", '{"zone": ["CET"]}')


@FORMATS
def test_a_required_call_is_one_that_the_parser_reads(tools: str) -> None:
    grammar = tool_grammar(tools, "required")
    for name, arguments in (GOOD, OTHER, ("weathers", "{}")):
        text = calls_text(tools, (name, arguments))
        assert fits(grammar, text)
        assert parse(new_parser(tools), [text]).calls in (
            [ParsedCall("id0", name, arguments)],
            [],  # llama3's parser reads only the names of its own tools
        )
    assert not fits(grammar, "It is sunny.")
    assert not fits(grammar, "")
    assert not fits(grammar, calls_text(tools, WRONG))
    assert not fits(grammar, calls_text(tools, ("unknown", "{}")))


@pytest.mark.parametrize("tools", sorted(TOOL_FORMATS))
def test_two_calls_as_each_family_writes_them_fit(tools: str) -> None:
    """What the grammar forces is what the parser reads, in every format."""
    offered = [function(tool.name, tool.parameters) for tool in OFFERED]
    grammar = tool_grammar(tools, "required", offered=offered, parallel=True)
    text = FORCED.get(tools, TWO[tools])
    assert fits(grammar, text)
    assert not fits(grammar, text.replace("2", "x"))
    assert not fits(grammar, text.replace("weather", "whether"))
    found = parse_any(new_parser(tools, offered=OFFERED), [text])[1]
    assert [json.loads(arguments) for _, arguments in found] == [ROME, ULM][: len(found)]
    assert found
    assert fits(
        tool_grammar(tools, "auto", offered=offered, parallel=False), PLAIN.get(tools, "Hi")
    )


ONE = json.dumps(ROME)
FORCED = {  # where the grammar writes one call at most, or white space of its own
    "llama3": f'{{"name": "weather", "parameters": {ONE}}}',
    "llama4": f'{{"name": "weather", "parameters": {ONE}}}',
    "pythonic": '[weather(city="Rome", days=2), time(city="Ulm")]',
    "command": (
        f'<|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "weather", "parameters": {ONE}}},'
        ' {"tool_call_id": "0", "tool_name": "time", "parameters": {"city": "Ulm"}}]<|END_ACTION|>'
    ),
    "mistral": (
        f'[TOOL_CALLS] [{{"name": "weather", "arguments": {ONE}}},'
        ' {"name": "time", "arguments": {"city": "Ulm"}}]'
    ),
    "gpt_oss": TWO["gpt_oss"].partition("<|start|>")[0],
}
PLAIN = {"gpt_oss": "<|channel|>final<|message|>Hi"}


@FORMATS
def test_a_named_tool_is_the_only_one(tools: str) -> None:
    named = {"type": "function", "function": {"name": "time"}}
    grammar = tool_grammar(tools, named)
    assert fits(grammar, calls_text(tools, OTHER))
    assert not fits(grammar, calls_text(tools, GOOD))
    if tools != "llama3":
        assert not fits(grammar, calls_text(tools, OTHER, OTHER))


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@FORMATS
def test_allowed_tools_are_the_only_ones(tools: str) -> None:
    offered = [function(tool.name, tool.parameters) for tool in OFFERED]
    for mode in ("auto", "required"):
        grammar = tool_grammar(tools, allowed(mode, "time"), offered=offered)
        assert fits(grammar, calls_text(tools, ("time", json.dumps(ULM))))
        assert not fits(grammar, calls_text(tools, ("weather", json.dumps(ROME))))
        assert fits(grammar, "Hm.") is (mode == "auto")
    both = [tool.name for tool in OFFERED]
    alike = (tool_grammar(tools, choice, offered=offered) for choice in ("auto", "required"))
    for mode, as_usual in zip(("auto", "required"), alike, strict=True):
        assert tool_grammar(tools, allowed(mode, *both), offered=offered) == as_usual


@pytest.mark.parametrize("tools", ["hermes", "mistral", "qwen3_coder"])
def test_several_calls_only_where_they_may_be_parallel(tools: str) -> None:
    both = calls_text(tools, GOOD, OTHER)
    assert fits(tool_grammar(tools, "required"), both)
    assert not fits(tool_grammar(tools, "required", parallel=False), both)
    assert not fits(tool_grammar(tools, "auto", parallel=False), both)


def test_an_untrained_model_makes_several_calls_only_if_asked_and_not_without_end() -> None:
    one = calls_text("pando", GOOD)
    for choice in ("auto", "required"):
        assert not fits(tool_grammar("pando", choice), f"{one}\n{one}")
        asked = tool_grammar("pando", choice, parallel=True)
        assert fits(asked, "\n".join([one] * MAX_CALLS))
        assert not fits(asked, "\n".join([one] * (MAX_CALLS + 1)))


def test_an_untrained_models_calls_always_fit_and_have_no_arguments_beside() -> None:
    closed = {"type": "object", "properties": {"a": {"properties": {"b": {}}}}, "required": ["a"]}
    for choice in ("auto", "required"):
        grammar = tool_grammar("pando", choice, offered=[function("run", closed)])
        assert fits(grammar, calls_text("pando", ("run", '{"a": {"b": 1}}')))
        assert not fits(grammar, calls_text("pando", ("run", "{}")))
        assert not fits(grammar, calls_text("pando", ("run", '{"a": {"b": 1}, "c": 1}')))
        assert not fits(grammar, calls_text("pando", ("run", '{"a": {"c": 1}}')))
        assert not fits(grammar, calls_text("pando", ("stop", "{}")))


@FORMATS
def test_a_strict_tool_constrains_calls_and_leaves_text_free(tools: str) -> None:
    grammar = tool_grammar(tools, "auto")
    for text in ("", "It is sunny {so far}.", calls_text(tools, GOOD), calls_text(tools, OTHER)):
        assert fits(grammar, text), text
    assert not fits(grammar, calls_text(tools, WRONG))
    if tools != "llama3":
        assert fits(grammar, "I look.\n" + calls_text(tools, GOOD))
        assert not fits(grammar, "I look.\n" + calls_text(tools, WRONG))


def test_a_plain_text_parameter_is_one_of_its_enum_or_any_text() -> None:
    schema = {"properties": {"mode": {"enum": ["fast", "slow"]}, "why": {"type": "string"}}}
    grammar = tool_grammar(
        "qwen3_coder", "required", offered=[function("run", schema, strict=True)]
    )
    assert fits(grammar, xml_call("run", {"mode": "fast", "why": 'a "good"\nreason'}))
    assert fits(grammar, xml_call("run", {"why": ""}))
    assert not fits(grammar, xml_call("run", {"mode": "other"}))
    assert not fits(grammar, xml_call("run", {"how": "other"}))


XML = ("qwen3_coder", "glm45", "minimax_m2")
MAYBE = {"anyOf": [{"type": "string", "pattern": "^[a-z]+$"}, {"type": "null"}]}


@pytest.mark.parametrize("tools", XML)
@pytest.mark.parametrize(
    ("of", "good", "bad"),
    [
        ({"type": "string", "pattern": "a+/"}, ["a/", "xaa/y", ">a/"], ["", "a", "/a", "<a/"]),
        ({"type": "string", "pattern": "^a|b$"}, ["a", "b"], ["x", ""]),
        ({"type": "string", "pattern": r"\\$"}, ["a\\"], ["a", "\\a", "$"]),
        (
            {"type": "string", "minLength": 2, "maxLength": 3},
            ["ab", "\u00e9\u00e9\u00e9"],
            ["a", "abcd"],
        ),
        (MAYBE, ["abc", None], ["", "ABC", '"abc"']),
        ({"type": ["string", "null"]}, ["", "abc", '"', None], []),
        ({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}, ["a", "b", None], ["c", ""]),
        ({"type": ["string", "null"], "enum": ["a", None]}, ["a", None], ["b", ""]),
    ],
)
def test_plain_text_is_kept_to_what_its_schema_asks_of_strings(
    tools: str, of: dict[str, Any], good: list[str | None], bad: list[str]
) -> None:
    schema = {"type": "object", "properties": {"a": of}, "required": ["a"]}
    offered = [function("run", schema, strict=True)]
    grammar = tool_grammar(tools, "required", offered=offered)
    for value in [*good, *bad]:
        call = written(tools, "null" if value is None else value)
        assert fits(grammar, call) is (value in good), call
        if value in good:
            tool = Tool("run", schema, strict=True)
            (parsed,) = parse(new_parser(tools, offered=[tool]), [call]).calls
            assert json.loads(parsed.arguments) == {"a": value}
            assert Draft202012Validator(schema).is_valid({"a": value})


def written(tools: str, value: str) -> str:
    """A call of `run`, as the family's template has it."""
    return {
        "qwen3_coder": xml_call("run", {"a": value}),
        "glm45": "<tool_call>run\n<arg_key>a</arg_key>\n"
        f"<arg_value>{value}</arg_value>\n</tool_call>",
        "minimax_m2": f'<minimax:tool_call>\n<invoke name="run">\n<parameter name="a">{value}'
        "</parameter>\n</invoke>\n</minimax:tool_call>",
    }[tools]


@pytest.mark.parametrize(
    "of",
    [
        {"type": "string", "format": "date"},
        {"type": ["string", "array"], "items": {"type": "integer"}},
        {"anyOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "not": {"const": "a"}},
    ],
)
def test_what_plain_text_cannot_be_kept_to_is_refused_where_a_tool_is_strict(
    of: dict[str, Any],
) -> None:
    offered = [function("run", {"properties": {"a": of}}, strict=True)]
    with pytest.raises(ApiError, match="is strict, but") as refused:
        tool_grammar("qwen3_coder", "auto", offered=offered)
    assert (refused.value.status, refused.value.param) == (400, "tools")


@pytest.mark.parametrize("of", [{"pattern": "a$b"}, {"pattern": 3}, {"minLength": "x"}])
def test_a_wrong_shape_of_plain_text_is_refused(of: dict[str, Any]) -> None:
    offered = [function("run", {"properties": {"a": {"type": "string", **of}}})]
    with pytest.raises(ApiError) as refused:
        tool_grammar("qwen3_coder", "required", offered=offered)
    assert (refused.value.status, refused.value.param) == (400, "tools")


@TRAINED
def test_tools_that_are_not_strict_leave_the_model_free(tools: str) -> None:
    assert tool_grammar(tools, "auto", offered=[function("time")]) is None
    assert tool_grammar(tools, "none") is None


# Answers beside calls


TRICKY = {"x": '<tool_call>\n{"name": "weather", "arguments": {}}'}
TEXTUAL = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
NAMED = {
    "type": "object",
    "properties": {"name": {"$ref": "#/$defs/word"}, "y": {"type": "integer"}},
    "required": ["name", "y"],
    "additionalProperties": False,
    "$defs": {"word": {"type": "string"}},
}


@pytest.mark.parametrize("tools", sorted(TOOL_FORMATS))
@pytest.mark.parametrize(
    ("shape", "answers", "wrong"),
    [
        ({"guided_json": TEXTUAL}, [json.dumps(TRICKY)], '{"x": 1}'),
        ({"guided_json": NAMED}, ['{"name": "weather", "y": 1}'], '{"name": 1, "y": 1}'),
        ({"guided_regex": "[a-z ]+[!<]"}, ["it rains!", "a<"], "it rains"),
        ({"guided_choice": ["yes", "no"]}, ["yes"], "maybe"),
    ],
)
def test_an_answer_of_its_own_form_leaves_calls_possible_and_is_never_read_as_one(
    tools: str, shape: dict[str, Any], answers: list[str], wrong: str
) -> None:
    offered = [function(tool.name, tool.parameters) for tool in OFFERED]
    channel = PLAIN.get(tools, "").removesuffix("Hi")
    reasoning = tools if channel else None
    grammar = tool_grammar(tools, "auto", offered=offered, parallel=True, **shape)
    call = FORCED.get(tools, TWO[tools])
    assert fits(grammar, call)
    assert not fits(grammar, channel + wrong)
    assert not fits(grammar, call.replace("weather", "whether"))
    for cuts in (1, 7, 999):

        def read(text: str, cuts: int = cuts) -> tuple[str, list[tuple[str, str]]]:
            parser = new_parser(tools, reasoning, offered=OFFERED, is_shaped=True)
            pieces = [text[at : at + cuts] for at in range(0, len(text), cuts)]
            return parse_any(parser, pieces)

        assert read(call)[1] == parse_any(new_parser(tools, offered=OFFERED), [call])[1] != []
        for answer in answers:
            assert fits(grammar, channel + answer)
            assert read(channel + answer) == (answer, [])


def test_mistrals_newer_form_is_forced_where_the_tokenizer_has_its_tokens() -> None:
    tokens = {"[TOOL_CALLS]": 1, "[ARGS]": 2}
    grammar = tool_grammar("mistral", "required", special_tokens=tokens)
    assert grammar is not None
    matcher = LLMatcher(BYTES, grammar)
    assert matcher.try_consume_tokens([1, *b"time", 2, *b'{"zone": "CET"}']) == 21
    assert matcher.is_accepting()


@pytest.mark.parametrize(
    ("tools", "fields", "param"),
    [
        ("hermes", {"choice": "required", "regex": "a"}, "regex"),
        ("hermes", {"choice": "auto", "regex": ".*"}, "regex"),
        ("qwen3_coder", {"choice": "auto", "guided_choice": ["a", "<b>"]}, "guided_choice"),
        (
            "llama3",
            {"choice": "auto", "response_format": {"type": "json_object"}},
            "response_format",
        ),
        ("llama3", {"choice": "auto", "regex": "[{]a"}, "regex"),
    ],
)
def test_what_could_be_mistaken_for_a_call_is_refused_beside_tools(
    tools: str, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as refused:
        tool_grammar(tools, fields.pop("choice"), **fields)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("tools", ["hermes", "llama3"])
def test_where_a_call_is_required_there_is_no_answer_that_a_response_format_constrains(
    tools: str,
) -> None:
    both = tool_grammar(tools, "required", response_format=schema_format(POINT))
    assert both == tool_grammar(tools, "required")


def test_a_broken_regex_is_said_without_places_in_what_became_of_it() -> None:
    with pytest.raises(ApiError) as refused:
        grammar_of(regex="(a")
    assert refused.value.message == 'regex cannot be used: invalid regex "(a": unclosed group'


@pytest.mark.parametrize(
    ("read", "param"),
    [
        (lambda: read_tool_use("x"), "tools"),
        (lambda: read_tool_use([{"type": "web_search"}]), "tools[0].type"),
        (lambda: read_tool_use([function("a"), function("no spaces")]), "tools[1].function.name"),
        (
            lambda: read_tool_use([function("a", parameters=[])]),
            "tools[0].function.parameters",
        ),
        (lambda: read_tool_use([function("a"), function("a")]), "tools"),
        (lambda: read_tool_use([function("a")] * 129), "tools"),
        (lambda: read_tool_use([function("a")], "any"), "tool_choice"),
        (lambda: read_tool_use([function("a")], {"function": {"name": "b"}}), "tool_choice"),
        (lambda: read_tool_use([function("a")], allowed("auto", "b")), "tool_choice"),
        (lambda: read_tool_use([function("a")], allowed("any", "a")), "tool_choice"),
        (lambda: read_tool_use([function("a")], allowed("auto")), "tool_choice"),
        (lambda: read_tool_use([function("a")], allowed("auto", *["a"] * 129)), "tool_choice"),
        (lambda: read_tool_use(None, "required"), "tool_choice"),
        (lambda: read_tool_use([function("a")], "auto", "yes"), "parallel_tool_calls"),
    ],
)
def test_wrong_tools_are_refused_with_their_fields_name(
    read: Callable[[], object], param: str
) -> None:
    with pytest.raises(ApiError) as refused:
        read()
    assert (refused.value.status, refused.value.param) == (400, param)
    assert refused.value.message.startswith(param) or "same name" in refused.value.message


# Reasoning


@pytest.mark.parametrize(
    ("start", "good", "bad"),
    [
        (Start.MAY_OPEN, ['{"x": 1}', '<think>\n"x"?</think>\n\n{"x": 1}'], ['hm</think>{"x": 1}']),
        (Start.INSIDE, ['hm {"x": 2}\n</think>\n\n{"x": 1}', '</think>{"x": 1}'], ['{"x": 1}']),
        (Start.ANSWER, ['{"x": 1}'], ['<think></think>{"x": 1}']),
    ],
)
def test_reasoning_is_free_and_the_answer_is_not(
    start: Start, good: list[str], bad: list[str]
) -> None:
    grammar = grammar_of(guided_json=POINT, reasoning=(REASONING_FORMATS["qwen3"], start))
    assert all(fits(grammar, text) for text in good)
    assert not any(fits(grammar, text) for text in [*bad, "<think>hm</think>no"])


def test_a_constrained_answer_of_gpt_oss_is_on_its_final_channel() -> None:
    reasoning = (REASONING_FORMATS["gpt_oss"], Start.MAY_OPEN)
    thoughts = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    final = '<|channel|>final<|message|>{"x": 1}'
    grammar = grammar_of(guided_json=POINT, reasoning=reasoning)
    assert fits(grammar, final) and fits(grammar, thoughts + final)
    assert not fits(grammar, '{"x": 1}')
    offered = [function(tool.name, tool.parameters) for tool in OFFERED]
    calls = tool_grammar("gpt_oss", "required", offered=offered, reasoning=reasoning)
    assert fits(calls, FORCED["gpt_oss"]) and fits(calls, thoughts + FORCED["gpt_oss"])
    assert not fits(calls, thoughts + "<|channel|>final<|message|>Hi")


@FORMATS
def test_a_required_call_may_come_after_reasoning(tools: str) -> None:
    reasoning = (REASONING_FORMATS["qwen3"], Start.MAY_OPEN)
    grammar = tool_grammar(tools, "required", reasoning=reasoning)
    assert fits(grammar, "<think>\nhm\n</think>\n\n" + calls_text(tools, GOOD))
    assert not fits(grammar, "<think>\nhm\n</think>\n\n" + calls_text(tools, WRONG))
