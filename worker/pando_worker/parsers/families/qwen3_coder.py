"""The tool calls of Qwen3-Coder and later Qwen models:

<tool_call>
<function=weather>
<parameter=city>
Rome
</parameter>
</function>
</tool_call>
"""

from functools import partial

from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.xml.calls import XmlForm
from pando_worker.parsers.xml.grammar import xml_grammar

_FORM = XmlForm(
    opening="<tool_call>",
    function="<function={}>",
    parameter="<parameter={}>",
    parameter_end="</parameter>",
    function_end="</function>",
    closing="</tool_call>",
)
_SHOWN = (_FORM.opening, "<function=", "<parameter=")

QWEN3_CODER = ToolFormat(
    name="qwen3_coder",
    help="`<tool_call><function=…><parameter=…>…</parameter></function></tool_call>`",
    models="Qwen3-Coder and later",
    speaks=lambda template: all(tag in template for tag in _SHOWN),
    markers=(_FORM.opening, _FORM.closing),
    new_parser=_FORM.parser,
    grammar=partial(xml_grammar, _FORM),
    new_id=long_id,
)
