"""The grammar of calls whose parameters stand in tags; see xml_calls.py. Parameters come in the
order of the schema; optional ones may be omitted."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pando_fleet.http.errors import bad_request
from pando_worker.parsers import lark
from pando_worker.parsers.tools import Tool
from pando_worker.parsers.xml_calls import NEWLINE, XmlForm
from pando_worker.parsers.xml_values import Reading, reading, schema_of

_NAME = re.compile(r"[^<>\s\"]{1,256}")
# Keywords that do not constrain a string.
_FREE_STRING = {"description", "title", "default", "examples"}
_REFERRED = ("$defs", "definitions")


def xml_grammar(
    form: XmlForm, tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool
) -> str:
    """As `ToolFormat.grammar`."""
    opening = lark.marker(form.opening, special_tokens)
    newline = lark.literal(NEWLINE)
    functions = [f"function_{number}" for number in range(len(tools))]
    function = f"({' | '.join(functions)})"
    more = f"({newline} {function})*" if parallel and form.repeats else ""
    again = f"({newline} call)*" if parallel and not form.repeats else ""
    closing = f"{newline} {lark.marker(form.closing, special_tokens)}" if form.closing else ""
    any_parameter = lark.literal(form.parameter.partition("{}")[0])
    name_end = lark.literal(_parameter(form, "")[len(form.parameter.partition("{}")[0]) :])
    return "\n".join(
        [
            f"calls: call {again}",
            f"call: {opening} body",
            lark.text_with("text_or_calls", opening, "body", many=parallel),
            f"body: {_optional(form.after_opening)} {function} {more} {closing}",
            f"free_value[suffix={lark.literal(form.parameter_end)}]: /(?s:.*)/",
            f"any_parameter: {any_parameter} NAME {name_end} free_value {newline}",
            r"NAME: /[^<>\s\"]{1,64}/",
            *(_function_rule(form, *of) for of in zip(functions, tools, strict=True)),
        ]
    )


def _optional(text: str) -> str:
    return lark.literal(text) if text else ""


def _parameter(form: XmlForm, name: str) -> str:
    """A parameter's text up to its value."""
    tag = form.parameter.replace("{}", name, 1).replace("{}", NEWLINE)
    return tag + form.around


def _function_rule(form: XmlForm, rule: str, tool: Tool) -> str:
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    known = properties if isinstance(properties, dict) else {}
    parts = [lark.literal(form.function.replace("{}", tool.name) + NEWLINE)]
    if not known and tool.parameters.get("additionalProperties") is not False:
        parts.append("any_parameter*")
    for name in known:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise bad_request(f"{name[:80]!r} is not a valid parameter name here", "tools")
        value = _value(form, tool, name, schema_of(tool.parameters, name) or {})
        parameter = f"{lark.literal(_parameter(form, name))} {value} {lark.literal(NEWLINE)}"
        needed = isinstance(required, list) and name in required
        parts.append(parameter if needed else f"({parameter})?")
    return f"{rule}: {' '.join(parts)} {lark.literal(form.function_end)}"


def _value(form: XmlForm, tool: Tool, name: str, schema: dict[str, Any]) -> str:
    """The grammar of a value and its closing tag."""
    end = lark.literal(form.around + form.parameter_end)
    given = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(given, list) and given and all(isinstance(value, str) for value in given):
        return f"({' | '.join(map(lark.literal, given))}) {end}"
    read = reading(tool.parameters, name)
    if read is Reading.JSON:
        definitions = {key: tool.parameters[key] for key in _REFERRED if key in tool.parameters}
        return f"{lark.json_value(definitions | schema, strict=tool.strict)} {end}"
    beyond = schema.keys() - (_FREE_STRING | {"type"} if read is Reading.STRING else _FREE_STRING)
    if tool.strict and beyond:
        raise bad_request(
            f"{tool.name} is strict, but {', '.join(sorted(beyond))} of its parameter {name!r}"
            " cannot be enforced in this model's tool call format",
            "tools",
        )
    return "free_value"
