"""The tool calls of Qwen3-Coder and later Qwen models:

    <tool_call>
    <function=weather>
    <parameter=city>
    Rome
    </parameter>
    </function>
    </tool_call>

The arguments are turned into a JSON object: strings are emitted as they arrive, other values when
they are complete.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pando_fleet.http.errors import bad_request
from pando_worker.parsers import lark
from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.pieces import Piece
from pando_worker.parsers.reader import Reader
from pando_worker.parsers.scanning import BLANKS, MAX_BLANKS, overlap
from pando_worker.parsers.tools import Tool
from pando_worker.parsers.xml_values import Reading, as_json, reading, schema_of

OPENING, CLOSING = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
_NAME = r"([^<>\s]{1,256})>"
_FUNCTION = re.compile(rf"[ \t\r\n]*{FUNCTION}{_NAME}")
_PARAMETER = re.compile(PARAMETER + _NAME)
_MAX_HEAD_CHARS = MAX_BLANKS  # of a tag with its name and the white space before it
# Keywords that do not constrain a string.
_FREE_STRING = {"description", "title", "default", "examples"}
_REFERRED = ("$defs", "definitions")
NEWLINE = "\n"


class Qwen3CoderParser:
    def __init__(self, tools: Sequence[Tool], new_id: Callable[[], str]) -> None:
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._reader = Reader(OPENING, new_id, self._found)
        self._out = self._reader.out
        self._schema: Mapping[str, Any] = {}  # of the called tool
        self._parameter = ""
        self._has_parameters = False
        self._whole: list[str] | None = None  # a value that is emitted when it is complete

    def push(self, text: str) -> list[Piece]:
        return self._reader.push(text)

    def flush(self) -> list[Piece]:
        reader = self._reader
        if reader.step == self._read_value:
            self._add_to_value(reader.unread)
        if reader.step in (self._read_value, self._read_parameter):
            reader.unread = ""
        return reader.flush()

    def _found(self) -> None:
        self._reader.step = self._read_function

    def _read_function(self) -> bool:
        reader = self._reader
        if found := _FUNCTION.match(reader.unread):
            self._schema = self._schemas.get(found[1], {})
            self._has_parameters = False
            self._out.call(found[1])
            reader.unread, reader.held = reader.unread[found.end() :], ""
            reader.step = self._read_parameter
        elif _may_become(reader.unread.lstrip(BLANKS), FUNCTION, len(reader.unread)):
            return False
        else:
            reader.give_back()
        return True

    def _read_parameter(self) -> bool:
        """Between parameters. Text that is neither a parameter nor the call's end also ends it."""
        self._reader.unread = text = self._reader.unread.lstrip(BLANKS)
        if found := _PARAMETER.match(text):
            self._begin_value(found[1])
            self._reader.unread = text[found.end() :]
            self._reader.step = self._skip_newline
        elif text.startswith(FUNCTION_END):
            self._end_call(text.removeprefix(FUNCTION_END))
        elif _may_become(text, PARAMETER, len(text)) or FUNCTION_END.startswith(text):
            return False
        else:
            self._end_call(text)
        return True

    def _begin_value(self, name: str) -> None:
        self._parameter = name
        self._out.arguments(
            ("{" if not self._has_parameters else ", ")
            + json.dumps(name, ensure_ascii=False)
            + ": "
        )
        self._has_parameters = True
        if reading(self._schema, name) is Reading.STRING:
            self._whole = None
            self._out.arguments('"')
        else:
            self._whole = []

    def _skip_newline(self) -> bool:
        self._reader.unread = self._reader.unread.removeprefix(NEWLINE)
        self._reader.step = self._read_value
        return True

    def _read_value(self) -> bool:
        """Up to the closing tag and at most one newline before it, which belongs to the format."""
        reader = self._reader
        at = reader.unread.find(PARAMETER_END)
        if at >= 0:
            self._add_to_value(reader.unread[:at].removesuffix(NEWLINE))
            reader.unread = reader.unread[at + len(PARAMETER_END) :]
            if self._whole is None:
                self._out.arguments('"')
            else:
                self._out.arguments(as_json("".join(self._whole), self._schema, self._parameter))
            reader.step = self._read_parameter
            return True
        held = max(overlap(reader.unread, tag) for tag in (PARAMETER_END, NEWLINE + PARAMETER_END))
        certain = len(reader.unread) - held
        self._add_to_value(reader.unread[:certain])
        reader.unread = reader.unread[certain:]
        return False

    def _add_to_value(self, text: str) -> None:
        if self._whole is None:
            self._out.arguments(json.dumps(text, ensure_ascii=False)[1:-1])
        else:
            self._whole.append(text)

    def _end_call(self, rest: str) -> None:
        self._out.arguments("}" if self._has_parameters else "{}")
        self._reader.unread = rest
        self._reader.step = self._read_closing

    def _read_closing(self) -> bool:
        return self._reader.read_closing(CLOSING)


def _may_become(text: str, tag: str, chars: int) -> bool:
    """Whether this text may be the beginning of a tag with a name."""
    if chars >= _MAX_HEAD_CHARS:
        return False
    name = text.removeprefix(tag)
    return tag.startswith(text) or (text.startswith(tag) and not re.search(r"[<>\s]", name))


def _grammar(tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool) -> str:
    """Parameters in the order of the schema; optional ones may be omitted."""
    opening, closing = (lark.marker(tag, special_tokens) for tag in (OPENING, CLOSING))
    newline = lark.literal(NEWLINE)
    again = f"({newline} call)*" if parallel else ""
    functions = [f"function_{number}" for number in range(len(tools))]
    return "\n".join(
        [
            f"calls: call {again}",
            f"call: {opening} body",
            lark.text_with("text_or_calls", opening, "body", many=parallel),
            f"body: {newline} ({' | '.join(functions)}) {newline} {closing}",
            f"free_value[suffix={lark.literal(PARAMETER_END)}]: /(?s:.*)/",
            f"any_parameter: {lark.literal(PARAMETER)} NAME {newline} free_value {newline}",
            r"NAME: /[^<>\s]{1,64}>/",
            *map(_function_rule, functions, tools),
        ]
    )


def _function_rule(rule: str, tool: Tool) -> str:
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    known = properties if isinstance(properties, dict) else {}
    parts = [lark.literal(f"{FUNCTION}{tool.name}>{NEWLINE}")]
    if not known and tool.parameters.get("additionalProperties") is not False:
        parts.append("any_parameter*")
    for name in known:
        if not isinstance(name, str) or not _PARAMETER.fullmatch(f"{PARAMETER}{name}>"):
            raise bad_request(f"{name[:80]!r} is not a valid parameter name here", "tools")
        value = _value(tool, name, schema_of(tool.parameters, name) or {})
        parameter = (
            f"{lark.literal(f'{PARAMETER}{name}>{NEWLINE}')} {value} {lark.literal(NEWLINE)}"
        )
        needed = isinstance(required, list) and name in required
        parts.append(parameter if needed else f"({parameter})?")
    return f"{rule}: {' '.join(parts)} {lark.literal(FUNCTION_END)}"


def _value(tool: Tool, name: str, schema: dict[str, Any]) -> str:
    """The grammar of a value and its closing tag."""
    end = lark.literal(NEWLINE + PARAMETER_END)
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


QWEN3_CODER = ToolFormat(
    name="qwen3_coder",
    help="`<tool_call><function=…><parameter=…>…</parameter></function></tool_call>`",
    models="Qwen3-Coder and later",
    speaks=lambda template: all(tag in template for tag in (OPENING, FUNCTION, PARAMETER)),
    markers=(OPENING, CLOSING),
    new_parser=Qwen3CoderParser,
    grammar=_grammar,
    new_id=long_id,
    beside_json=True,
)
