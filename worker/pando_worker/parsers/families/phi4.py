"""The tool calls of Phi-4-mini: `functools[{"name": ..., "arguments": {...}}, ...]`, or the array
between `<|tool_call|>` and `<|/tool_call|>`.

Its chat template takes the tools from a field of the system message, not from the request.
"""

import json
from collections.abc import Sequence
from typing import Any

from pando_worker.parsers.arrays import ArrayForm, named_call
from pando_worker.parsers.formats import ToolFormat, long_id

_WORD, _OPENING, _CLOSING = "functools", "<|tool_call|>", "<|/tool_call|>"
_FORM = ArrayForm(markers=(_OPENING, _WORD), closing=_CLOSING, call=named_call)


def _with_tools(
    messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, template: str
) -> list[dict[str, Any]]:
    if not tools:
        return list(messages)
    functions = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "tools": functions}, *messages[1:]]
    system = {"role": "system", "content": "You are a helpful assistant with some tools."}
    return [{**system, "tools": functions}, *messages]


PHI4 = ToolFormat(
    name="phi4",
    help='`<|tool_call|>[{"name": …, "arguments": {…}}, …]<|/tool_call|>`, or `functools[…]`',
    models="Phi-4-mini",
    speaks=lambda template: "<|tool|>" in template and "<|/tool|>" in template,
    markers=(_OPENING, _CLOSING),
    new_parser=lambda tools, new_id: _FORM.parser(new_id),
    grammar=_FORM.grammar,
    new_id=long_id,
    show_tools=_with_tools,
)
