"""The tool calls of Command R7B and Command A, between two tokens:
`<|START_ACTION|>[{"tool_call_id": "0", "tool_name": ..., "parameters": {...}}]<|END_ACTION|>`."""

from pando_worker.parsers import lark
from pando_worker.parsers.arrays import ArrayForm
from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.tools import Tool

_OPENING, _CLOSING = "<|START_ACTION|>", "<|END_ACTION|>"


def _call(tool: Tool) -> tuple[str, str]:
    return f'{{"tool_call_id": "0", "tool_name": {lark.literal(tool.name)}, "parameters": ', "}"


_FORM = ArrayForm(markers=(_OPENING,), closing=_CLOSING, call=_call)

COMMAND = ToolFormat(
    name="command",
    help='`<|START_ACTION|>[{"tool_name": …, "parameters": {…}}, …]<|END_ACTION|>`',
    models="Command R7B and Command A",
    speaks=lambda template: _OPENING in template,
    markers=(_OPENING, _CLOSING),
    new_parser=lambda tools, new_id: _FORM.parser(new_id),
    grammar=_FORM.grammar,
    new_id=long_id,
)
