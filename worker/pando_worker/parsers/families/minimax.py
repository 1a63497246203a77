"""The tool calls of MiniMax M2, any number of them in one block:

<minimax:tool_call>
<invoke name="weather">
<parameter name="city">Rome</parameter>
</invoke>
</minimax:tool_call>
"""

from functools import partial

from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.xml.calls import XmlForm
from pando_worker.parsers.xml.grammar import xml_grammar

_FORM = XmlForm(
    opening="<minimax:tool_call>",
    function='<invoke name="{}">',
    parameter='<parameter name="{}">',
    parameter_end="</parameter>",
    function_end="</invoke>",
    closing="</minimax:tool_call>",
    around="",
    repeats=True,
)

MINIMAX_M2 = ToolFormat(
    name="minimax_m2",
    help='`<minimax:tool_call><invoke name="…"><parameter name="…">…</parameter></invoke>…`',
    models="MiniMax M2",
    speaks=lambda template: "minimax:tool_call" in template and "<invoke" in template,
    markers=(_FORM.opening, _FORM.closing),
    new_parser=_FORM.parser,
    grammar=partial(xml_grammar, _FORM),
    new_id=long_id,
)
