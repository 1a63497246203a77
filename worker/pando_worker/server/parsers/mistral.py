"""Tool calls as Mistral's models write them, after the token `[TOOL_CALLS]`.

Older models write one JSON array, `[{"name": ..., "arguments": {...}}, ...]`; newer ones each call
as `[TOOL_CALLS]name[ARGS]{...}`, some of them without `[ARGS]` or with `[CALL_ID]` and an id.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from pando_worker.server.parsers import lark
from pando_worker.server.parsers.call_object import CallObject, State
from pando_worker.server.parsers.emitter import Emitter
from pando_worker.server.parsers.formats import ToolFormat, random_id
from pando_worker.server.parsers.pieces import Piece
from pando_worker.server.parsers.scanning import BLANKS, MAX_BLANKS, JsonEnd, Until
from pando_worker.server.parsers.tools import Tool

TOOL_CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_HEADER = re.compile(
    r"\s*([\w.-]{1,256})\s*(?:\[CALL_ID\]\s*\w{1,64}\s*)?(?:\[ARGS\])?\s*", re.ASCII
)
_NOT_OF_HEADER = re.compile(r"[^\w.\-\s\[\]]", re.ASCII)
_MAX_HEADER_CHARS = MAX_BLANKS


class MistralParser:
    def __init__(self, new_id: Callable[[], str]) -> None:
        self._out = Emitter(new_id)
        self._text = Until(TOOL_CALLS)
        self._call: CallObject | None = None
        self._before_call = ""  # what stands in front of the call that is read, if it is one
        self._arguments = JsonEnd()
        self._unread = ""
        self._step = self._read_text

    def push(self, text: str) -> list[Piece]:
        self._unread += text
        while self._unread and self._step():
            pass
        return self._out.take()

    def flush(self) -> list[Piece]:
        if self._call is not None:
            self._call.flush()
            self._read_call()
        elif self._step in (self._read_form, self._read_header):
            self._out.content(self._text.gap + TOOL_CALLS)
        self._out.content(self._text.flush() + self._unread)
        return self._out.take()

    def _read_text(self) -> bool:
        before, after = self._text.push(self._unread)
        self._out.content(before)
        self._unread = after or ""
        if after is not None:
            self._step = self._read_form
        return True

    def _read_form(self) -> bool:
        """After the token: an array or a name?"""
        text = self._unread.lstrip(BLANKS)
        if not text and len(self._unread) < MAX_BLANKS:
            return False
        blanks = self._unread[: len(self._unread) - len(text)]
        if len(blanks) < MAX_BLANKS and text[0] == "[":
            self._unread = text[1:]
            self._expect_call(self._text.gap + TOOL_CALLS + blanks + "[")
        else:
            self._step = self._read_header
        return True

    def _read_header(self) -> bool:
        text = self._unread
        stop = _NOT_OF_HEADER.search(text, 0, _MAX_HEADER_CHARS)
        if stop is None and len(text) < _MAX_HEADER_CHARS:
            return False
        header = _HEADER.fullmatch(text, 0, stop.start()) if stop and stop[0] == "{" else None
        if header is None:
            self._out.content(self._text.gap + TOOL_CALLS)
            self._step = self._read_text
        else:
            self._out.call(header[1])
            self._unread = text[header.end() :]
            self._arguments, self._step = JsonEnd(), self._read_arguments
        return True

    def _read_arguments(self) -> bool:
        end = self._arguments.find(self._unread)
        cut = len(self._unread) if end < 0 else end
        self._out.arguments(self._unread[:cut])
        self._unread = self._unread[cut:]
        if end >= 0:
            self._step = self._read_text
        return True

    def _expect_call(self, before: str) -> None:
        self._before_call = before
        self._call, self._step = CallObject(), self._read_call

    def _read_call(self) -> bool:
        assert self._call is not None
        arguments, self._unread = self._call.push(self._unread)
        self._out.call_object(self._call, arguments)
        if self._call.state is State.DONE:
            self._call, self._step = None, self._read_separator
        elif self._call.state is State.NO_CALL:
            self._out.content(self._before_call + self._call.given_back)
            self._call, self._step = None, self._read_text
        return True

    def _read_separator(self) -> bool:
        text = self._unread.lstrip(BLANKS)
        if not text:
            self._unread = ""
            return False
        if text[0] == ",":
            self._unread = text[1:]
            self._expect_call(",")
        else:
            self._unread = text.removeprefix("]")
            self._step = self._read_text
        return True


def _grammar(tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool) -> str:
    """In the newer form where the tokenizer knows its tokens."""
    opening = lark.marker(TOOL_CALLS, special_tokens)
    if ARGS not in special_tokens:
        more = f"({lark.literal(', ')} object)*" if parallel else ""
        return "\n".join(
            [
                f"calls: {opening} array",
                lark.text_with("text_or_calls", opening, "array", many=False),
                f"array: {lark.literal(' [')} object {more} {lark.literal(']')}",
                lark.call_object("object", tools, "arguments"),
            ]
        )
    args = lark.marker(ARGS, special_tokens)
    bodies = (
        f"{lark.literal(tool.name)} {args} {lark.json_value(tool.parameters, strict=tool.strict)}"
        for tool in tools
    )
    return "\n".join(
        [
            f"calls: call{'+' if parallel else ''}",
            f"call: {opening} body",
            lark.text_with("text_or_calls", opening, "body", many=parallel),
            f"body: {' | '.join(bodies)}",
        ]
    )


MISTRAL = ToolFormat(
    name="mistral",
    markers=(TOOL_CALLS, ARGS, CALL_ID),
    new_parser=lambda tools, new_id: MistralParser(new_id),
    grammar=_grammar,
    new_id=lambda: random_id(9),  # as Mistral's chat templates demand when they read it back
    beside_json=True,
)
