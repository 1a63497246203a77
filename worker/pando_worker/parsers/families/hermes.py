"""The tool calls of Hermes and Qwen models, any number of them with text before and between:
`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from collections.abc import Callable, Mapping, Sequence

from pando_worker.parsers import lark
from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.reader import Reader
from pando_worker.parsers.tools import Tool

OPENING, CLOSING = "<tool_call>", "</tool_call>"


class _Hermes:
    def __init__(self, new_id: Callable[[], str]) -> None:
        self.reader = Reader(OPENING, new_id, self._found)

    def _found(self) -> None:
        self.reader.expect_call(self._read_closing)

    def _read_closing(self) -> bool:
        return self.reader.read_closing(CLOSING)


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


def _speaks(template: str) -> bool:
    """Qwen3-Coder's and GLM's XML stands in the same tag."""
    is_xml = "<function=" in template or "<arg_key>" in template
    return OPENING in template and not is_xml


HERMES = ToolFormat(
    name="hermes",
    help='`<tool_call>{"name": …, "arguments": {…}}</tool_call>`',
    models="Qwen 2.5 and 3, Hermes",
    speaks=_speaks,
    markers=(OPENING, CLOSING),
    new_parser=lambda tools, new_id: _Hermes(new_id).reader,
    grammar=_grammar,
    new_id=long_id,
)
