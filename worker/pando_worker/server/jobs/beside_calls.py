"""The grammar of outputs that may be tool calls, beside an answer that may have a grammar of its
own. `parsers.beside.CallsOrAnswer` reads what it allows."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pando_worker.parsers import lark
from pando_worker.parsers.formats import ToolFormat
from pando_worker.parsers.tools import Choice, Tool, ToolUse
from pando_worker.server.errors import bad_request

Grammar = dict[str, Any]
"""One grammar of llguidance's list: {"json_schema": ...} or {"lark_grammar": ...}."""

MayBegin = Callable[[Grammar, str], bool]
"""Whether an output of a grammar may begin with a text."""


def with_calls(
    answer: Grammar | None,
    param: str,
    tool_use: ToolUse,
    tool_format: ToolFormat,
    special_tokens: Mapping[str, int],
    may_begin: MayBegin,
) -> list[Grammar]:
    """Only calls if one is required; else the answer, or any text, and optional calls. The grammars
    behind the first are those that it refers to; none: the output is unconstrained.

    Raises ApiError 400 if the answer could be mistaken for a call.

    Args:
        answer: of the field `param`
    """
    required = tool_use.choice is Choice.REQUIRED
    parallel = tool_format.parallel if tool_use.parallel is None else tool_use.parallel
    is_trained = tool_format.show_tools is None
    is_strict = any(tool.strict for tool in tool_use.tools)
    is_bound = required or is_strict or tool_use.some_barred
    if is_trained and parallel and not (is_bound or answer):
        return []
    if required and param == "response_format":
        answer = None  # it is of an answer, and there will be none
    if required and answer is not None:
        raise bad_request(f"{param} cannot be given if tool_choice requires a call", param)
    rules = tool_format.grammar(tool_use.tools, special_tokens, parallel=parallel)
    if answer is None:
        start = "calls" if required else "text_or_calls"
        return [{"lark_grammar": f"start: {start}\n{rules}"}]
    _refuse_mistakable(answer, param, tool_use.tools, tool_format, may_begin)
    if _is_like_calls(answer, tool_format, may_begin):
        return [{"json_schema": _answer_or_call(answer["json_schema"], tool_use.tools)}]
    before = tool_format.before_answer
    before = lark.spelled(before, special_tokens) if before else ""
    rules = f"start: {before} @shaped | calls\n{rules}"
    return [{"lark_grammar": rules}, {"name": "shaped", **answer}]


def _refuse_mistakable(
    answer: Grammar,
    param: str,
    tools: tuple[Tool, ...],
    tool_format: ToolFormat,
    may_begin: MayBegin,
) -> None:
    if tool_format.before_answer:
        return  # which no call has
    for begin in tool_format.begins(tools):
        # Terminals of other grammars than JSON's can end within the beginning of a call, and then
        # the longer one wins: their first character has to differ.
        mistakable = begin if "json_schema" in answer else begin[0]
        if may_begin(answer, mistakable):
            raise bad_request(
                f"{param} cannot be combined with these tools: an answer may begin with"
                f" {mistakable!r}, as a call of this model does; set tool_choice to 'none' or omit"
                " the tools",
                param,
            )


def _is_like_calls(answer: Grammar, tool_format: ToolFormat, may_begin: MayBegin) -> bool:
    return tool_format.bare_objects and "json_schema" in answer and may_begin(answer, "{")


def _answer_or_call(answer: Mapping[str, Any], tools: tuple[Tool, ...]) -> dict[str, Any]:
    """One schema for an answer and calls that are bare objects, since only within one schema may
    both begin alike."""
    options = answer["x-guidance"]
    own = {key: value for key, value in answer.items() if key != "x-guidance"}
    schemas = [_moved(own, "#/anyOf/0")]
    for number, tool in enumerate(tools, 1):
        parameters = _moved(tool.parameters, f"#/anyOf/{number}/properties/parameters")
        schemas.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "parameters": parameters},
                "required": ["name", "parameters"],
                "additionalProperties": False,
            }
        )
    strict = not options["lenient"] or any(tool.strict for tool in tools)
    return lark.on_one_line({"anyOf": schemas}, strict=strict)


def _moved(schema: Any, to: str) -> Any:
    """A schema whose references, which are relative to its root, find their targets from a root
    that has the schema at the place `to`."""
    if isinstance(schema, list):
        return [_moved(each, to) for each in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: value if key == "enum" else _moved(value, to) for key, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = to + reference[1:]
    return moved


def text_of(grammars: list[Grammar]) -> str:
    """As llguidance reads it."""
    return json.dumps({"grammars": grammars})
