"""The tool calls of DeepSeek's models. V3 and R1 write `function<sep>name` and the arguments in a
block of code, V3.1 and later `name<sep>{...}`; both are read."""

import re
from collections.abc import Mapping
from dataclasses import replace

from pando_worker.parsers import lark
from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.headed import NAME, HeadedForm

_SECTION, _SECTION_END, _BEGIN, _END, _SEP = (
    f"<\uff5ctool\u2581{words}\uff5c>"
    for words in (
        "calls\u2581begin",
        "calls\u2581end",
        "call\u2581begin",
        "call\u2581end",
        "sep",
    )
)
_FENCE = "```"
_HEAD = re.compile(rf"\s*(?:function{_SEP})?{NAME}\s*(?:{_FENCE}(?:json)?|{_SEP})\s*", re.ASCII)


def _v3(name: str, special_tokens: Mapping[str, int]) -> tuple[str, str]:
    head = lark.literal(f"{name}\n{_FENCE}json\n")
    before = f'"function" {lark.marker(_SEP, special_tokens)} {head}'
    return before, f"{lark.literal(f'{chr(10)}{_FENCE}')} {lark.marker(_END, special_tokens)}"


def _v31(name: str, special_tokens: Mapping[str, int]) -> tuple[str, str]:
    before = f"{lark.literal(name)} {lark.marker(_SEP, special_tokens)}"
    return before, lark.marker(_END, special_tokens)


_FORM = HeadedForm(
    section=_SECTION,
    begin=_BEGIN,
    head=_HEAD,
    closings=(_FENCE, _END, _SECTION_END),
    written=_v3,
    between="\n",
    end=_SECTION_END,
)
_FORM_V31 = replace(_FORM, written=_v31, between="")

DEEPSEEK_V3 = ToolFormat(
    name="deepseek_v3",
    help=f"`{_BEGIN}function{_SEP}…`, then the arguments in a block of code",
    models="DeepSeek V3 and R1",
    speaks=lambda template: _BEGIN in template and _FENCE in template,
    markers=(*_FORM.markers, _SEP, _END, _SECTION_END),
    new_parser=lambda tools, new_id: _FORM.parser(new_id),
    grammar=_FORM.grammar,
    new_id=long_id,
)
DEEPSEEK_V31 = replace(
    DEEPSEEK_V3,
    name="deepseek_v31",
    help=f"`{_BEGIN}…{_SEP}{{…}}{_END}`",
    models="DeepSeek V3.1",
    speaks=lambda template: _BEGIN in template and _FENCE not in template,
    grammar=_FORM_V31.grammar,
)
