"""The tool calls of Granite 3, `<|tool_call|>[{"name": ..., "arguments": {...}}, ...]`. Granite 3.1
writes the token as `<tool_call>`, and Granite 4 writes calls as Hermes models do."""

from pando_worker.parsers.arrays import ArrayForm, named_call
from pando_worker.parsers.formats import ToolFormat, long_id

_TOKEN, _EARLIER = "<|tool_call|>", "<tool_call>"
_FORM = ArrayForm(markers=(_TOKEN, _EARLIER), call=named_call)

GRANITE = ToolFormat(
    name="granite",
    help='`<|tool_call|>[{"name": …, "arguments": {…}}, …]`',
    models="Granite 3",
    speaks=lambda template: "<|start_of_role|>" in template and _TOKEN in template,
    markers=_FORM.markers,
    new_parser=lambda tools, new_id: _FORM.parser(new_id),
    grammar=_FORM.grammar,
    new_id=long_id,
)
