"""Reads calls whose parameters stand in tags as plain text, as Qwen3-Coder, GLM and MiniMax write
them. They become a JSON object: strings are emitted as they arrive, other values when they are
complete. `XmlForm` says which tags.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pando_worker.parsers.pieces import Piece
from pando_worker.parsers.reader import Reader
from pando_worker.parsers.scanning import BLANKS, MAX_BLANKS, overlap
from pando_worker.parsers.tools import Tool
from pando_worker.parsers.xml.values import Reading, as_json, reading

if TYPE_CHECKING:
    import regex

_MAX_HEAD_CHARS = MAX_BLANKS  # of a tag with its name and the white space before it
_BLANKS = r"[ \t\r\n]*"
NEWLINE = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlForm:
    """Tags; `{}` in those with a name stands for it."""

    opening: str  # before a call
    function: str
    parameter: str
    parameter_end: str
    function_end: str
    closing: str  # after a call, if that is not `function_end`
    # White space that the templates write: behind `opening`, and between a parameter's tags and its
    # value.
    after_opening: str = NEWLINE
    around: str = NEWLINE
    repeats: bool = False  # several functions stand between `opening` and `closing`

    def parser(self, tools: Sequence[Tool], new_id: Callable[[], str]) -> "_XmlCalls":
        return _XmlCalls(self, tools, new_id)


class _XmlCalls:
    def __init__(self, form: XmlForm, tools: Sequence[Tool], new_id: Callable[[], str]) -> None:
        self._form = form
        self._function = _tag(form.function)
        self._parameter_tag = _tag(form.parameter)
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._reader = Reader(form.opening, new_id, self._found)
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
        found = _head(self._function, reader.unread)
        if found is None:
            reader.give_back()
        elif found.partial:
            return False
        else:
            self._begin_call(found)
        return True

    def _begin_call(self, found: "regex.Match[str]") -> None:
        self._schema = self._schemas.get(found["name"], {})
        self._has_parameters = False
        self._out.call(found["name"])
        self._reader.unread, self._reader.held = self._reader.unread[found.end() :], ""
        self._reader.step = self._read_parameter

    def _read_parameter(self) -> bool:
        """Between parameters. Text that is neither a parameter nor the call's end also ends it."""
        end = self._form.function_end
        self._reader.unread = text = self._reader.unread.lstrip(BLANKS)
        found = _head(self._parameter_tag, text)
        if found and not found.partial:
            self._begin_value(found["name"])
            self._reader.unread = text[found.end() :]
            self._reader.step = self._skip_newline
        elif text.startswith(end):
            self._end_call(text.removeprefix(end))
        elif found or end.startswith(text):
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
        reader, end = self._reader, self._form.parameter_end
        at = reader.unread.find(end)
        if at >= 0:
            self._add_to_value(reader.unread[:at].removesuffix(NEWLINE))
            reader.unread = reader.unread[at + len(end) :]
            if self._whole is None:
                self._out.arguments('"')
            else:
                self._out.arguments(as_json("".join(self._whole), self._schema, self._parameter))
            reader.step = self._read_parameter
            return True
        held = max(overlap(reader.unread, tag) for tag in (end, NEWLINE + end))
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
        self._reader.step = self._read_next if self._form.repeats else self._read_closing

    def _read_next(self) -> bool:
        """Another function, or what closes them all."""
        reader = self._reader
        reader.unread = reader.unread.lstrip(BLANKS)
        found = _head(self._function, reader.unread)
        if found is None:
            reader.step = self._read_closing
        elif found.partial:
            return False
        else:
            self._begin_call(found)
        return True

    def _read_closing(self) -> bool:
        return self._reader.read_closing(self._form.closing)


def _tag(text: str) -> "regex.Pattern[str]":
    """The text with a name at `{}`, after white space; another `{}` stands for white space."""
    # Imported here: it takes long, and every command that reads a worker's settings has this file.
    import regex

    before, _, after = text.partition("{}")
    name = r"(?P<name>[^<>\s\"]{1,256})"
    # The name of GLM's function has no end of its own: another tag follows.
    rest = _BLANKS.join(map(regex.escape, after.split("{}"))) if after else r"(?=\s*<)"
    return regex.compile(_BLANKS + regex.escape(before) + name + rest)


def _head(tag: "regex.Pattern[str]", text: str) -> "regex.Match[str] | None":
    """The tag at the text's beginning; its match is `partial` if more text may complete it."""
    return tag.match(text, 0, _MAX_HEAD_CHARS, partial=len(text) < _MAX_HEAD_CHARS)
