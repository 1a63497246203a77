"""Tool calls as Llama 3 writes them: the output is `{"name": ..., "parameters": {...}}`, or comes
to that after the token `<|python_tag|>`; several are separated by semicolons.

Without the token only an object whose name is a tool's is a call, and only where the output begins.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from pando_worker.server.parsers import lark
from pando_worker.server.parsers.call_object import CallObject, State
from pando_worker.server.parsers.emitter import Emitter
from pando_worker.server.parsers.formats import ToolFormat, long_id
from pando_worker.server.parsers.pieces import Piece
from pando_worker.server.parsers.scanning import BLANKS, MAX_BLANKS, Until
from pando_worker.server.parsers.tools import Tool

TAG = "<|python_tag|>"


class Llama3Parser:
    def __init__(self, names: Collection[str], new_id: Callable[[], str]) -> None:
        self._names = names
        self._out = Emitter(new_id)
        self._text = Until(TAG)
        self._call: CallObject | None = None
        self._before_call = ""  # what stands in front of the call that is read, if it is one
        self._unread = ""
        self._step = self._read_beginning

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

    def _read_beginning(self) -> bool:
        text = self._unread.lstrip(BLANKS)
        if not text and len(self._unread) < MAX_BLANKS:
            return False
        if len(self._unread) - len(text) < MAX_BLANKS and text[0] == "{":
            before = self._unread[: len(self._unread) - len(text)]
            self._unread = text
            self._expect_call(before)
        else:
            self._step = self._read_text
        return True

    def _read_text(self) -> bool:
        before, after = self._text.push(self._unread)
        self._out.content(before)
        self._unread = after or ""
        if after is not None:
            self._expect_call(self._text.gap + TAG)
        return True

    def _expect_call(self, before: str) -> None:
        self._before_call = before
        self._call, self._step = CallObject(self._names.__contains__), self._read_call

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
        if text[0] == ";":
            self._unread = text[1:]
            self._expect_call(";")
        else:
            self._step = self._read_text
        return True


def _grammar(tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool) -> str:
    """Always one call: Llama's chat templates refuse more."""
    tag = lark.marker(TAG, special_tokens)
    return "\n".join(
        [
            "calls: object",
            f"text_or_calls: (TEXT | {tag}? object)?",
            r"TEXT: /\s*[^{\s](?s:.*)/",
            lark.call_object("object", tools, "parameters"),
        ]
    )


LLAMA3 = ToolFormat(
    name="llama3",
    markers=(TAG,),
    new_parser=lambda tools, new_id: Llama3Parser({tool.name for tool in tools}, new_id),
    grammar=_grammar,
    new_id=long_id,
    beside_json=False,
)
