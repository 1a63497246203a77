"""The tool calls of Kimi K2, whose ids later messages must repeat:
`<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|>`."""

import re
from collections.abc import Mapping

from pando_worker.parsers import lark
from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.headed import NAME, HeadedForm

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_BEGIN, _END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"


def _written(name: str, special_tokens: Mapping[str, int]) -> tuple[str, str]:
    head = f"{lark.literal(f'functions.{name}:')} /[0-9]{{1,2}}/"
    arguments, end = (lark.marker(text, special_tokens) for text in (_ARGUMENTS, _END))
    return f"{head} {arguments}", end


_FORM = HeadedForm(
    section=_SECTION,
    begin=_BEGIN,
    head=re.compile(
        rf"\s*(?P<id>(?:functions\.)?{NAME}:\d{{1,4}})\s*{re.escape(_ARGUMENTS)}\s*", re.ASCII
    ),
    closings=(_END, _SECTION_END),
    written=_written,
    end=_SECTION_END,
)

KIMI_K2 = ToolFormat(
    name="kimi_k2",
    help="`<|tool_call_begin|>functions.…:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`",
    models="Kimi K2",
    speaks=lambda template: _BEGIN in template,
    markers=(*_FORM.markers, _ARGUMENTS, _END, _SECTION_END),
    new_parser=lambda tools, new_id: _FORM.parser(new_id),
    grammar=_FORM.grammar,
    new_id=long_id,
)
