"""The tool calls of Mistral's models, after the token `[TOOL_CALLS]`.

Older models write one JSON array, `[{"name": ..., "arguments": {...}}, ...]`; newer ones write each
call as `[TOOL_CALLS]name[ARGS]{...}`, some without `[ARGS]` or with `[CALL_ID]` and an id.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from pando_worker.parsers import lark
from pando_worker.parsers.formats import ToolFormat, random_id
from pando_worker.parsers.reader import Reader
from pando_worker.parsers.scanning import MAX_BLANKS
from pando_worker.parsers.tools import Tool

TOOL_CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_HEADER = re.compile(
    r"\s*([\w.-]{1,256})\s*(?:\[CALL_ID\]\s*\w{1,64}\s*)?(?:\[ARGS\])?\s*", re.ASCII
)
_NOT_OF_HEADER = re.compile(r"[^\w.\-\s\[\]]", re.ASCII)
_MAX_HEADER_CHARS = MAX_BLANKS


class _Mistral:
    def __init__(self, new_id: Callable[[], str]) -> None:
        self.reader = Reader(TOOL_CALLS, new_id, self._found)

    def _found(self) -> None:
        self.reader.step = self._read_form

    def _read_form(self) -> bool:
        """Decide whether an array or a name follows the token."""
        return self.reader.read_array(self._read_separator, otherwise=self._read_header)

    def _read_header(self) -> bool:
        reader = self.reader
        text = reader.unread
        stop = _NOT_OF_HEADER.search(text, 0, _MAX_HEADER_CHARS)
        if stop is None and len(text) < _MAX_HEADER_CHARS:
            return False
        header = _HEADER.fullmatch(text, 0, stop.start()) if stop and stop[0] == "{" else None
        if header is None:
            reader.give_back()
        else:
            reader.out.call(header[1])
            reader.unread, reader.held = text[header.end() :], ""
            reader.expect_arguments(reader.read_text)
        return True

    def _read_separator(self) -> bool:
        return self.reader.read_separator(",", closing="]")


def _grammar(tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool) -> str:
    """In the newer form if the tokenizer has its tokens."""
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
    help="`[TOOL_CALLS]…`",
    models="Mistral",
    speaks=lambda template: TOOL_CALLS in template,
    markers=(TOOL_CALLS, ARGS, CALL_ID),
    new_parser=lambda tools, new_id: _Mistral(new_id).reader,
    grammar=_grammar,
    # The length that Mistral's chat templates require in later messages.
    new_id=lambda: random_id(9),
)
