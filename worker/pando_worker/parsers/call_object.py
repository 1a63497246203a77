"""Reads one tool call that a model writes as a JSON object, `{"name": ..., "arguments": {...}}`.

If the name comes first, as it nearly always does, the arguments are emitted as they arrive;
otherwise the whole object is read first. Llama writes `parameters` instead of `arguments`, and
Command `tool_name` instead of `name`, after a `tool_call_id`.
"""

import json
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from pando_worker.parsers.scanning import BLANKS, JsonEnd

MAX_NAME_CHARS = 256
HEAD_CHARS = 1024  # the arguments must begin within these to be emitted as they arrive
_BEGIN = re.compile(r"[ \t\r\n]*\{[ \t\r\n]*")
_FIRST_KEYS = ('"name"', '"arguments"', '"parameters"', '"id"', '"type"', '"tool_')
_HEAD = re.compile(
    r'[ \t\r\n]*\{\s*(?:"tool_call_id"\s*:\s*"[^"\\]{0,64}"\s*,\s*)?"(?:tool_)?name"\s*:\s*'
    r'("(?:[^"\\]|\\.){1,256}")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)


class State(Enum):
    UNDECIDED = auto()
    ARGUMENTS = auto()  # it is a call; its arguments are arriving
    CLOSING = auto()  # the arguments are complete
    DONE = auto()
    NO_CALL = auto()  # `given_back` is the text, which was not a call


class CallObject:
    """Call `push` until the state is DONE or NO_CALL. The name is known from ARGUMENTS on."""

    def __init__(self, is_tool: Callable[[str], bool] = bool) -> None:
        """
        Args:
            is_tool: whether an object with this name is a call; by default, any name is.
        """
        self.state = State.UNDECIDED
        self.name = ""
        self.given_back = ""
        self._is_tool = is_tool
        self._closes = False  # other keys or the last bracket have arrived
        self._read: list[str] = []  # all text so far, while undecided
        self._reads_whole = False  # whether to read to the end before deciding
        self._end = JsonEnd()  # of the object, or of its arguments

    def push(self, text: str) -> tuple[str, str]:
        """The next part of the arguments, and the text after the object or the text that was not a
        call; either may be empty."""
        arguments = ""
        if self.state is State.UNDECIDED:
            arguments, text = self._decide(text)
        if self.state is State.ARGUMENTS and text:
            end = self._end.find(text)
            cut = len(text) if end < 0 else end
            arguments, text = text[:cut], text[cut:]
            if end >= 0:
                self.state, self._end = State.CLOSING, JsonEnd(depth=1)
        if self.state is State.CLOSING and text:
            text = self._close(text)
        return arguments, text

    def flush(self) -> None:
        """End of the text: an undecided object is not a call; unfinished arguments stay so."""
        if self.state is State.UNDECIDED:
            self._give_back("".join(self._read))

    def _decide(self, text: str) -> tuple[str, str]:
        """Decides by the text only, however it was cut into pieces."""
        if not self._reads_whole:
            text = "".join(self._read) + text
            self._read.clear()
            if (decided := self._decide_by_head(text)) is not None:
                return decided
            if len(text) < HEAD_CHARS and JsonEnd().find(text.lstrip(BLANKS)) < 0:
                self._read.append(text)
                return "", ""
            self._reads_whole = True
            blanks = len(text) - len(text.lstrip(BLANKS))
            self._read.append(text[:blanks])
            text = text[blanks:]
        end = self._end.find(text)
        self._read.append(text if end < 0 else text[:end])
        return ("", "") if end < 0 else self._whole("".join(self._read), text[end:])

    def _decide_by_head(self, read: str) -> tuple[str, str] | None:
        """Decide by the first HEAD_CHARS of the text; None if they do not decide it (yet)."""
        head = read[:HEAD_CHARS]
        begin = _BEGIN.match(head)
        if begin is None:
            blanks = len(head) - len(head.lstrip(BLANKS))
            if blanks == len(read) < HEAD_CHARS:
                return None
            return self._give_back(read[:blanks], read[blanks:])
        key = head[begin.end() :]
        if not any(key.startswith(first) or first.startswith(key) for first in _FIRST_KEYS):
            return self._give_back(read[: begin.end()], read[begin.end() :])
        found = _HEAD.match(head)
        name = _unquoted(found[1]) if found else None
        if found is None or name is None:
            return None
        if not self._is_tool(name):
            return self._give_back(read[: found.end()], read[found.end() :])
        self.name = name
        self.state = State.ARGUMENTS
        return "", read[found.end() :]

    def _whole(self, text: str, rest: str) -> tuple[str, str]:
        """The object ended before its arguments could be emitted separately."""
        call = _read_call(text)
        if call is None or not self._is_tool(call[0]):
            return self._give_back(text, rest)
        self.name, arguments = call
        self.state = State.DONE
        return arguments, rest

    def _close(self, text: str) -> str:
        """Other keys may follow the arguments. Models also forget the last bracket."""
        if not self._closes:
            text = text.lstrip(BLANKS)
            if not text:
                return ""
            if text[0] not in ",}":
                self.state = State.DONE
                return text
            self._closes = True
        end = self._end.find(text)
        if end < 0:
            return ""
        self.state = State.DONE
        return text[end:]

    def _give_back(self, text: str, rest: str = "") -> tuple[str, str]:
        self.state, self.given_back = State.NO_CALL, text
        return "", rest


def _read_call(text: str) -> tuple[str, str] | None:
    """Name and arguments, as JSON text, of a complete object."""
    try:
        call: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict):
        return None
    if not isinstance(name := call.get("name", call.get("tool_name")), str):
        return None
    arguments = call.get("arguments", call.get("parameters"))
    if arguments is None and call.keys() <= {"name", "id", "type"}:
        arguments = {}  # some models omit empty arguments
    if isinstance(arguments, str):  # some models write them as a string
        return (name, arguments) if _is_object(arguments) else None
    if not 1 <= len(name) <= MAX_NAME_CHARS or not isinstance(arguments, dict):
        return None
    return name, json.dumps(arguments, ensure_ascii=False)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _unquoted(text: str) -> str | None:
    try:
        return str(json.loads(text))
    except ValueError:
        return None
