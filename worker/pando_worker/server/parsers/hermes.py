"""Tool calls as Hermes and Qwen write them, any number of them with text before and between:
`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from collections.abc import Callable, Mapping, Sequence

from pando_worker.server.parsers import lark
from pando_worker.server.parsers.call_object import CallObject, State
from pando_worker.server.parsers.emitter import Emitter
from pando_worker.server.parsers.formats import ToolFormat, long_id
from pando_worker.server.parsers.pieces import Piece
from pando_worker.server.parsers.scanning import BLANKS, Until
from pando_worker.server.parsers.tools import Tool

OPENING, CLOSING = "<tool_call>", "</tool_call>"


class HermesParser:
    def __init__(self, new_id: Callable[[], str]) -> None:
        self._out = Emitter(new_id)
        self._text = Until(OPENING)
        self._call: CallObject | None = None
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
        self._out.content(self._text.flush() + self._unread)
        return self._out.take()

    def _read_text(self) -> bool:
        before, after = self._text.push(self._unread)
        self._out.content(before)
        self._unread = after or ""
        if after is not None:
            self._call, self._step = CallObject(), self._read_call
        return True

    def _read_call(self) -> bool:
        assert self._call is not None
        arguments, self._unread = self._call.push(self._unread)
        self._out.call_object(self._call, arguments)
        if self._call.state is State.DONE:
            self._call, self._step = None, self._read_closing
        elif self._call.state is State.NO_CALL:
            self._out.content(self._text.gap + OPENING + self._call.given_back)
            self._call, self._step = None, self._read_text
        return True

    def _read_closing(self) -> bool:
        """The closing tag, which some models forget."""
        self._unread = self._unread.lstrip(BLANKS)
        if CLOSING.startswith(self._unread) and self._unread != CLOSING:
            return False
        self._unread = self._unread.removeprefix(CLOSING)
        self._step = self._read_text
        return True


def _grammar(tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool) -> str:
    opening, closing = (lark.marker(tag, special_tokens) for tag in (OPENING, CLOSING))
    newline = lark.literal("\n")
    again = f"({newline} call)*" if parallel else ""
    return "\n".join(
        [
            f"calls: call {again}",
            f"call: {opening} body",
            lark.text_with("text_or_calls", opening, "body", many=parallel),
            f"body: {newline} object {newline} {closing}",
            lark.call_object("object", tools, "arguments"),
        ]
    )


HERMES = ToolFormat(
    name="hermes",
    markers=(OPENING, CLOSING),
    new_parser=lambda tools, new_id: HermesParser(new_id),
    grammar=_grammar,
    new_id=long_id,
    beside_json=True,
)
