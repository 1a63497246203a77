"""The grammar of calls whose parameters stand in tags; see calls.py. Parameters come in the
order of the schema; optional ones may be omitted."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pando_fleet.http.errors import bad_request
from pando_worker.parsers import lark
from pando_worker.parsers.tools import Tool
from pando_worker.parsers.xml.calls import NEWLINE, XmlForm
from pando_worker.parsers.xml.texts import shaped_text
from pando_worker.parsers.xml.values import Reading, alternatives, reading, schema_of

_NAME = re.compile(r"[^<>\s\"]{1,256}")
# Keywords that constrain nothing, and those of a string.
_FREE = {"description", "title", "default", "examples"}
_SHAPES = {"pattern", "minLength", "maxLength"}
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
            *(
                line
                for rule, tool in zip(functions, tools, strict=True)
                for line in _function_rules(form, rule, tool)
            ),
        ]
    )


def _optional(text: str) -> str:
    return lark.literal(text) if text else ""


def _parameter(form: XmlForm, name: str) -> str:
    """A parameter's text up to its value."""
    tag = form.parameter.replace("{}", name, 1).replace("{}", NEWLINE)
    return tag + form.around


def _function_rules(form: XmlForm, rule: str, tool: Tool) -> list[str]:
    """The function's rule, and terminals of its own."""
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    known = properties if isinstance(properties, dict) else {}
    parts = [lark.literal(form.function.replace("{}", tool.name) + NEWLINE)]
    terminals: list[str] = []
    if not known and tool.parameters.get("additionalProperties") is not False:
        parts.append("any_parameter*")
    for name in known:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise bad_request(f"{name[:80]!r} is not a valid parameter name here", "tools")
        schema = schema_of(tool.parameters, name) or {}
        text = _text(form, tool, name, schema)
        if text is None:
            value = _value(form, tool, name, schema)
        else:
            value = f"{rule.upper()}_TEXT_{len(terminals)}"
            terminals.append(f"{value}: {text}")
        parameter = f"{lark.literal(_parameter(form, name))} {value} {lark.literal(NEWLINE)}"
        needed = isinstance(required, list) and name in required
        parts.append(parameter if needed else f"({parameter})?")
    whole = f"{rule}: {' '.join(parts)} {lark.literal(form.function_end)}"
    return [whole, *terminals]


def _value(form: XmlForm, tool: Tool, name: str, schema: dict[str, Any]) -> str:
    """The grammar of a value and its closing tag."""
    end = lark.literal(form.around + form.parameter_end)
    if choices := _choices(schema, tool.parameters):
        return f"({' | '.join(map(lark.literal, choices))}) {end}"
    if reading(tool.parameters, name) is Reading.JSON:
        definitions = {key: tool.parameters[key] for key in _REFERRED if key in tool.parameters}
        return f"{lark.json_value(definitions | schema, strict=tool.strict)} {end}"
    return "free_value"


def _choices(schema: dict[str, Any], parameters: Mapping[str, Any]) -> list[str]:
    """The texts of a parameter of which all are known: strings and null."""
    choices: list[str] = []
    for part in alternatives(schema, parameters):
        null = [None] if part.get("type") == "null" else None
        given = part.get("enum", [part["const"]] if "const" in part else null)
        if not isinstance(given, list) or not all(isinstance(one, str | None) for one in given):
            return []
        choices += ["null" if one is None else one for one in given]
    return choices


def _text(form: XmlForm, tool: Tool, name: str, schema: dict[str, Any]) -> str | None:
    """The terminal of a value that is text, and its closing tag; None if any text fits, or no text
    does. Raises ApiError 400 if the tool is strict and text cannot be kept to its schema."""
    read = reading(tool.parameters, name)
    if read is Reading.JSON or _choices(schema, tool.parameters):
        return None
    strings, beyond = _strings(tool.parameters, schema)
    if tool.strict and beyond:
        raise bad_request(
            f"{tool.name} is strict, but {', '.join(sorted(beyond))} of its parameter {name!r}"
            " cannot be enforced in this model's tool call format",
            "tools",
        )
    if beyond or not strings.keys() & _SHAPES:
        return None
    return shaped_text(strings, form, alone=read is Reading.STRING)


def _strings(
    parameters: Mapping[str, Any], schema: dict[str, Any]
) -> tuple[Mapping[str, Any], set[str]]:
    """Of a parameter that may be a string: that string's schema, and the keywords that text cannot
    be kept to."""
    parts, beyond = alternatives(schema, parameters), set[str]()
    if parts != [schema]:
        beyond |= schema.keys() - _FREE - {"anyOf", "oneOf"}
    strings = [part for part in parts if "string" in _listed(part.get("type"))]
    shaped = [part for part in strings if part.keys() & _SHAPES]
    for part in parts:
        beyond |= part.keys() - _FREE - {"type"} - (_SHAPES if part in strings else set())
    if shaped and len(strings) > 1:
        beyond |= shaped[0].keys() & _SHAPES
    return (strings[0] if strings else {}), beyond


def _listed(kinds: Any) -> list[Any]:
    return kinds if isinstance(kinds, list) else [kinds]
