"""Calls in the form of Python, as Llama 4 and some Llama 3.2 templates ask for:
`[weather(city="Rome"), time()]`, or the same between `<|python_start|>` and `<|python_end|>`.

Without the token, a list is one of calls only at the beginning of the output and with a tool's
name. Each argument is emitted as JSON when it is complete.
"""

import ast
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from pando_worker.parsers import lark
from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.pieces import Piece
from pando_worker.parsers.reader import Reader
from pando_worker.parsers.scanning import BLANKS, MAX_BLANKS
from pando_worker.parsers.tools import Tool

START, END = "<|python_start|>", "<|python_end|>"
_CALL = re.compile(r"[ \t\r\n]*([A-Za-z_][\w.-]{0,255})[ \t\r\n]*\(")
_NO_CALL = re.compile(r"[^\w.\-\s]", re.ASCII)
_KEY = re.compile(r"([A-Za-z_]\w{0,255})[ \t\r\n]{0,64}=")
_KEY_BEGUN = re.compile(r"[A-Za-z_]\w{0,255}[ \t\r\n]{0,64}")
_OUTSIDE = re.compile(r"""["'(){}\[\],]""")
_MAX_HEAD_CHARS = MAX_BLANKS


class _Pythonic:
    def __init__(self, names: Collection[str], new_id: Callable[[], str]) -> None:
        self.reader = Reader(START, new_id, self._found)
        self.reader.step = self._read_beginning
        self._names = names
        self._has_arguments = False
        self._value = _ValueEnd()
        self._read: list[str] = []  # of a value so far

    def push(self, text: str) -> list[Piece]:
        return self.reader.push(text)

    def flush(self) -> list[Piece]:
        if self.reader.step in (self._read_key, self._read_value):  # a cut call stays so
            self.reader.unread = ""
        return self.reader.flush()

    def _found(self) -> None:
        self.reader.step = self._read_bracket

    def _read_beginning(self) -> bool:
        """Of the output."""
        reader = self.reader
        text = reader.unread.lstrip(BLANKS)
        if not text and len(reader.unread) < MAX_BLANKS:
            return False
        reader.step = self._read_bracket if text.startswith("[") else reader.read_text
        return True

    def _read_bracket(self) -> bool:
        reader = self.reader
        text = reader.unread.lstrip(BLANKS)
        blanks = reader.unread[: len(reader.unread) - len(text)]
        if not text and len(blanks) < MAX_BLANKS:
            return False
        if text.startswith("[") and len(blanks) < MAX_BLANKS:
            reader.held += blanks + "["
            reader.unread, reader.step = text[1:], self._read_name
        else:
            reader.give_back()
        return True

    def _read_name(self) -> bool:
        reader = self.reader
        stop = _NO_CALL.search(reader.unread, 0, _MAX_HEAD_CHARS)
        if stop is None and len(reader.unread) < _MAX_HEAD_CHARS:
            return False
        found = _CALL.match(reader.unread) if stop and stop[0] == "(" else None
        if found is None or found[1] not in self._names:
            reader.give_back()
        else:
            reader.out.call(found[1])
            reader.held, reader.unread = "", reader.unread[found.end() :]
            self._has_arguments, reader.step = False, self._read_key
        return True

    def _read_key(self) -> bool:
        """The next argument's name, or the call's end."""
        reader = self.reader
        text = reader.unread.lstrip(BLANKS + ",")
        if not text:
            reader.unread = ""
            return False
        if text[0] == ")":
            reader.out.arguments("}" if self._has_arguments else "{}")
            reader.unread, reader.step = text[1:], self._read_separator
        elif found := _KEY.match(text):
            start = ", " if self._has_arguments else "{"
            reader.out.arguments(f"{start}{json.dumps(found[1])}: ")
            self._has_arguments = True
            reader.unread, reader.step = text[found.end() :], self._read_value
        elif _KEY_BEGUN.fullmatch(text):
            reader.unread = text
            return False
        else:  # not an argument: the call ends here
            reader.out.arguments("}" if self._has_arguments else "{}")
            reader.unread, reader.step = text, reader.read_text
        return True

    def _read_value(self) -> bool:
        reader = self.reader
        end = self._value.find(reader.unread)
        self._read.append(reader.unread if end < 0 else reader.unread[:end])
        reader.unread = "" if end < 0 else reader.unread[end:]
        if end < 0:
            return False
        reader.out.arguments(_as_json("".join(self._read)))
        self._read, self._value, reader.step = [], _ValueEnd(), self._read_key
        return True

    def _read_separator(self) -> bool:
        reader = self.reader
        reader.unread = text = reader.unread.lstrip(BLANKS)
        if not text:
            return False
        if text[0] == ",":
            reader.held, reader.unread, reader.step = ",", text[1:], self._read_name
        else:
            reader.unread, reader.step = text.removeprefix("]"), self._read_end
        return True

    def _read_end(self) -> bool:
        return self.reader.read_closing(END)


class _ValueEnd:
    """Finds the comma or bracket that ends a Python value."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._escaped = False

    def find(self, text: str) -> int:
        """Its index in this next part of the text; -1 if it is not there."""
        at = 0
        while at < len(text):
            if self._quote:
                at = self._in_string(text, at)
                continue
            found = _OUTSIDE.search(text, at)
            if found is None:
                return -1
            char, at = found[0], found.end()
            if char in "\"'":
                self._quote = char
            elif self._depth == 0 and char in ",)]}":
                return at - 1
            elif char != ",":
                self._depth += 1 if char in "([{" else -1
        return -1

    def _in_string(self, text: str, at: int) -> int:
        char = text[at]
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == self._quote:
            self._quote = ""
        return at + 1


def _as_json(text: str) -> str:
    """A value in JSON, from JSON or from Python; anything else is a string."""
    for read in (json.loads, ast.literal_eval):
        try:
            return json.dumps(read(text.strip()), ensure_ascii=False, allow_nan=False)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return json.dumps(text.strip(), ensure_ascii=False)


def _grammar(tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool) -> str:
    """Arguments in the order of the schema, the required ones first, as JSON."""
    more = f"({lark.literal(', ')} call)*" if parallel else ""
    return "\n".join(
        [
            f'calls: "[" call {more} "]"',
            f"text_or_calls: (TEXT | {lark.marker(START, special_tokens)}? calls)?",
            r"TEXT: /\s*[^\[\s](?s:.*)/",
            f"call: {' | '.join(map(_call, tools))}",
        ]
    )


def _call(tool: Tool) -> str:
    properties = tool.parameters.get("properties")
    known = properties if isinstance(properties, dict) else {}
    needed = tool.parameters.get("required")
    required = [name for name in known if isinstance(needed, list) and name in needed]
    optional = [name for name in known if name not in required]
    shared = {
        key: tool.parameters[key] for key in ("$defs", "definitions") if key in tool.parameters
    }

    def argument(name: str) -> str:
        schema = known[name] if isinstance(known[name], dict) else {}
        return f"{lark.literal(f'{name}=')} {lark.json_value(shared | schema, strict=tool.strict)}"

    comma = lark.literal(", ")
    tails = "".join(f" ({comma} {argument(name)})?" for name in optional)
    if required:
        arguments = f" {comma} ".join(map(argument, required)) + tails
    else:  # any of them may be the first
        starts = [
            argument(name)
            + "".join(f" ({comma} {argument(later)})?" for later in optional[i + 1 :])
            for i, name in enumerate(optional)
        ]
        arguments = f"({' | '.join(starts)})?" if starts else ""
    return f'{lark.literal(f"{tool.name}(")} {arguments} ")"'


PYTHONIC = ToolFormat(
    name="pythonic",
    help='`[name(argument="…"), …]`',
    models="Llama 4, and Llama 3.2 with a pythonic template",
    speaks=lambda template: "[func_name1(" in template,
    markers=(START, END),
    new_parser=lambda tools, new_id: _Pythonic({tool.name for tool in tools}, new_id),
    grammar=_grammar,
    new_id=long_id,
    begins_with=lambda tools: [f"[{tool.name}(" for tool in tools],
)
