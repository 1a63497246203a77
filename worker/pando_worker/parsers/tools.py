"""Reads and checks the tools of a chat request, and how the model may use them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from pando_fleet.http.errors import bad_request

MAX_TOOLS = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    parameters: dict[str, Any]  # a JSON schema
    strict: bool  # arguments must follow it, or the request is refused


class Choice(Enum):
    AUTO = auto()  # the model decides whether to call
    REQUIRED = auto()  # it must call at least one tool


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Which tools the output may call. A request without tools, or with tool_choice "none", has no
    ToolUse: its output is not searched for calls."""

    tools: tuple[Tool, ...]  # that may be called; only one if tool_choice names it
    choice: Choice
    parallel: bool | None  # whether one output may have several calls; None: the format's default
    named: bool  # tool_choice names the tool; OpenAI then ends with "stop", not "tool_calls"
    some_barred: bool = False  # whether the prompt shows tools that may not be called


def read_tool_use(
    tools: object, tool_choice: object = None, parallel_tool_calls: object = None
) -> ToolUse | None:
    """Read a chat request's raw fields. Raises ApiError 400 with the field's name as `param`."""
    offered = _read_tools(tools)
    if not isinstance(parallel_tool_calls, bool | None):
        raise bad_request("parallel_tool_calls must be true or false", "parallel_tool_calls")
    parallel = parallel_tool_calls
    if not offered:
        if tool_choice not in (None, "none", "auto"):
            raise bad_request("tool_choice needs tools to choose from", "tool_choice")
        return None
    match tool_choice:
        case "none":
            return None
        case None | "auto":
            return ToolUse(offered, Choice.AUTO, parallel, named=False)
        case "required":
            return ToolUse(offered, Choice.REQUIRED, parallel, named=False)
        case {"type": "function", "function": {"name": str(name)}}:
            chosen = _named(offered, [name])
            return ToolUse(chosen, Choice.REQUIRED, parallel=False, named=True)
        case {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)},
        } if 1 <= len(allowed) <= MAX_TOOLS:
            chosen = _named(offered, [_allowed_name(tool, i) for i, tool in enumerate(allowed)])
            choice = Choice.AUTO if mode == "auto" else Choice.REQUIRED
            barred = len(chosen) < len(offered)
            return ToolUse(chosen, choice, parallel, named=False, some_barred=barred)
        case _:
            raise bad_request(
                "tool_choice must be 'none', 'auto', 'required',"
                " {'type': 'function', 'function': {'name': ...}} or {'type': 'allowed_tools',"
                " 'allowed_tools': {'mode': 'auto' or 'required', 'tools':"
                f" [1 to {MAX_TOOLS}]}}}}",
                "tool_choice",
            )


def _allowed_name(tool: object, index: int) -> str:
    match tool:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
        case _:
            raise bad_request(
                f"tool_choice.allowed_tools.tools[{index}] must be"
                " {'type': 'function', 'function': {'name': ...}}",
                "tool_choice",
            )


def _named(offered: tuple[Tool, ...], names: Sequence[str]) -> tuple[Tool, ...]:
    """In the order in which they are offered."""
    known = {tool.name for tool in offered}
    missing = [name for name in names if name not in known]
    if missing:
        raise bad_request(
            f"tool_choice names {missing[0][:64]!r}, which is none of the tools", "tool_choice"
        )
    return tuple(tool for tool in offered if tool.name in names)


def _read_tools(tools: object) -> tuple[Tool, ...]:
    if tools is None:
        return ()
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise bad_request("tools must be a list", "tools")
    if len(tools) > MAX_TOOLS:
        raise bad_request(f"tools must have at most {MAX_TOOLS} items, not {len(tools)}", "tools")
    read = tuple(_read_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools))
    if len({tool.name for tool in read}) < len(read):
        raise bad_request("two tools have the same name", "tools")
    return read


def _read_tool(tool: object, param: str) -> Tool:
    match tool:
        case {"type": "function", "function": {"name": str(name), **rest}}:
            pass
        case {"type": str(kind)} if kind != "function":
            raise bad_request(
                f"{param}.type must be 'function', not {kind[:64]!r}", f"{param}.type"
            )
        case _:
            wanted = "{type: 'function', function: {name: ..., ...}}"
            raise bad_request(f"{param} must be {wanted}", param)
    if not _NAME.fullmatch(name):
        raise bad_request(
            f"{param}.function.name must be 1 to 64 letters, digits, _ or -, not {name[:80]!r}",
            f"{param}.function.name",
        )
    parameters = rest.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise bad_request(
            f"{param}.function.parameters must be a JSON schema", f"{param}.function.parameters"
        )
    strict = rest.get("strict")
    if not isinstance(strict, bool | None):
        raise bad_request(
            f"{param}.function.strict must be true or false", f"{param}.function.strict"
        )
    return Tool(name, parameters, strict is True)
