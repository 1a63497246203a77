"""The tool calls of Llama 3: the output is `{"name": ..., "parameters": {...}}`, or contains it
after the token `<|python_tag|>`; several are separated by semicolons. Llama 4 writes them between
`<|python_start|>` and `<|python_end|>`.

Without the token, an object is a call only at the beginning of the output and with a tool's name.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from pando_worker.parsers import lark
from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.reader import Reader
from pando_worker.parsers.scanning import BLANKS, MAX_BLANKS
from pando_worker.parsers.tools import Tool

TAG = "<|python_tag|>"
KEY = "parameters"
TAG_4, CLOSING_4 = "<|python_start|>", "<|python_end|>"


class _Llama3:
    def __init__(
        self, names: Collection[str], new_id: Callable[[], str], tag: str = TAG, closing: str = ""
    ) -> None:
        self.reader = Reader(tag, new_id, self._found, names.__contains__)
        self._closing = closing
        self.reader.step = self._read_beginning

    def _found(self) -> None:
        self.reader.expect_call(self._read_separator)

    def _read_beginning(self) -> bool:
        reader = self.reader
        text = reader.unread.lstrip(BLANKS)
        if not text and len(reader.unread) < MAX_BLANKS:
            return False
        blanks = reader.unread[: len(reader.unread) - len(text)]
        if len(blanks) < MAX_BLANKS and text[0] == "{":
            reader.unread, reader.held = text, blanks
            self._found()
        else:
            reader.step = reader.read_text
        return True

    def _read_separator(self) -> bool:
        return self.reader.read_separator(";", closing=self._closing)


def _grammar(tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool) -> str:
    """Always a single call, since Llama's chat templates refuse more."""
    tag = lark.marker(TAG, special_tokens)
    return "\n".join(
        [
            "calls: object",
            f"text_or_calls: (TEXT | {tag}? object)?",
            r"TEXT: /\s*[^{\s](?s:.*)/",
            lark.call_object("object", tools, KEY),
        ]
    )


def _grammar_4(tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool) -> str:
    renamed = {TAG: special_tokens[TAG_4]} if TAG_4 in special_tokens else {}
    return _grammar(tools, renamed, parallel=parallel)


def _speaks(template: str) -> bool:
    """Llama 3.2's template shows the object, but not the token."""
    shows_object = "<|start_header_id|>" in template and '"parameters"' in template
    if "[func_name1(" in template:
        return False
    return TAG in template or (shows_object and "<tool_call>" not in template)


LLAMA3 = ToolFormat(
    name="llama3",
    help='`{"name": …, "parameters": {…}}`, or after `<|python_tag|>`',
    models="Llama 3.1 to 3.3",
    speaks=_speaks,
    markers=(TAG,),
    new_parser=lambda tools, new_id: _Llama3({tool.name for tool in tools}, new_id).reader,
    grammar=_grammar,
    new_id=long_id,
    begins_with=lambda tools: [lark.call_head(tool, KEY) for tool in tools],
    bare_objects=True,
)
LLAMA4 = replace(
    LLAMA3,
    name="llama4",
    help='`{"name": …, "parameters": {…}}`, or after `<|python_start|>`',
    models="Llama 4",
    speaks=lambda template: (
        "<|header_start|>" in template
        and '"parameters"' in template
        and "[func_name1(" not in template
    ),
    markers=(TAG_4, CLOSING_4),
    new_parser=lambda tools, new_id: (
        _Llama3({tool.name for tool in tools}, new_id, TAG_4, CLOSING_4).reader
    ),
    grammar=_grammar_4,
)
