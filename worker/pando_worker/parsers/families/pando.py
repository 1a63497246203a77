"""Pando's own tool calls, for models whose chat templates show no tools or an unknown form.

The tools stand in the system message, calls are written as Hermes models do, and results of tools
are a user's messages. Such models were trained on none of this, so a grammar keeps every call to
its schema: once a call has begun, only calls follow.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pando_worker.parsers import lark
from pando_worker.parsers.families.hermes import CLOSING, HERMES, OPENING
from pando_worker.parsers.tools import Tool

MAX_CALLS = 4
"""Of one output: a model that was not trained on calls may repeat them without end."""

Message = dict[str, Any]

_NO_SYSTEM = re.compile(r"system[^'\"]* not supported", re.IGNORECASE)
_ALTERNATING = re.compile(r"must alternate", re.IGNORECASE)
_NAMES_SYSTEM = re.compile(r"""['"]system['"]""")


def with_tools(
    messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None, template: str
) -> list[Message]:
    """A conversation as a chat template without tools shows it.

    Args:
        messages: as a chat template takes them; a content is a text or a list of parts. Arguments
            of calls are objects.
        tools: as in a chat request, checked; None to show none.
        template: the source of the chat template, which may know no system message.
    """
    shown: list[Message] = []
    follows_result = False
    for message in messages:
        written = _written(message)
        if follows_result and written["role"] == "user":  # templates may want turns to alternate
            shown[-1]["content"] = _joined(shown[-1]["content"], written["content"])
        else:
            shown.append(written)
        follows_result = message["role"] == "tool"
    if not tools:
        return shown
    tools_text = _instructions(tools)
    if not _has_system(template):
        question, answer = _EXAMPLE
        return [{**question, "content": f"{tools_text}\n\n{question['content']}"}, answer, *shown]
    first = {"role": "system", "content": tools_text}
    if shown and shown[0]["role"] in ("system", "developer"):
        given = shown.pop(0)
        first = {**given, "content": _joined(given["content"], tools_text)}
    turns = [first, *_EXAMPLE]
    if any(isinstance(message["content"], list) for message in shown):
        turns = [{**turn, "content": _parts(turn["content"])} for turn in turns]
    return [*turns, *shown]


def _written(message: Message) -> Message:
    """A copy in which calls and their results are text."""
    content = message["content"]
    match message:
        case {"role": "tool"}:
            content = _surrounded("<tool_response>\n", content, "\n</tool_response>")
            return {"role": "user", "content": content}
        case {"role": "assistant", "tool_calls": [*calls], **rest}:
            text = "\n".join(_call(call["function"]) for call in calls)
            return {**rest, "role": "assistant", "content": _joined(content, text)}
    return dict(message)


def _call(function: Mapping[str, Any]) -> str:
    call = {"name": function["name"], "arguments": function["arguments"]}
    return f"{OPENING}\n{json.dumps(call, ensure_ascii=False)}\n{CLOSING}"


_EXAMPLE: tuple[Message, Message] = (
    {"role": "user", "content": "Ring the bell twice."},
    {"role": "assistant", "content": _call({"name": "ring_bell", "arguments": {"times": 2}})},
)
"""Without this turn before the conversation, a small model nearly never calls (see
docs/benchmarks/tool-calls.md)."""


def _instructions(tools: Sequence[dict[str, Any]]) -> str:
    """In the words of Hermes' template, which many models have seen."""
    functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        f"<tools>\n{functions}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within"
        f" {OPENING}{CLOSING} XML tags:\n"
        f'{OPENING}\n{{"name": <function-name>, "arguments": <args-json-object>}}\n{CLOSING}'
    )


def _has_system(template: str) -> bool:
    if _NO_SYSTEM.search(template):
        return False
    return _NAMES_SYSTEM.search(template) is not None or not _ALTERNATING.search(template)


def _joined(first: Any, second: Any) -> Any:
    """Two contents, as one."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}" if first else second
    return [*_parts(first), *_parts(second)]


def _surrounded(before: str, content: Any, after: str) -> Any:
    if isinstance(content, str):
        return before + content + after
    return [*_parts(before), *content, *_parts(after)]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _grammar(tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool) -> str:
    opening, closing = (lark.marker(tag, special_tokens) for tag in (OPENING, CLOSING))
    newline = lark.literal("\n")
    more = f" ({newline} {opening} body){{0,{MAX_CALLS - 1}}}" if parallel else ""
    return "\n".join(
        [
            f"calls: {opening} body{more}",
            lark.text_with("text_or_calls", opening, f"body{more}", many=False),
            f"body: {newline} object {newline} {closing}",
            lark.call_object("object", [_closed(tool) for tool in tools], "arguments"),
        ]
    )


def _closed(tool: Tool) -> Tool:
    return replace(tool, parameters=_without_more(tool.parameters))


def _without_more(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without properties that it does not name, which such a model would invent."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    inner = {k: _without_more(v) if isinstance(v, dict) else v for k, v in properties.items()}
    combined = schema.keys() & {"additionalProperties", "patternProperties", "$ref", *_COMBINING}
    return {**schema, "properties": inner} | ({} if combined else {"additionalProperties": False})


_COMBINING = ("allOf", "anyOf", "oneOf", "if")

PANDO = replace(
    HERMES,
    name="pando",
    help="Pando's own: the tools in the system message, calls as of `hermes`, always by a grammar",
    models="none: what `auto` takes where a template shows no tools, or an unknown form",
    speaks=lambda template: False,
    grammar=_grammar,
    show_tools=with_tools,
    parallel=False,
)
