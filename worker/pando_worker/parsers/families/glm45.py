"""The tool calls of GLM 4.5 and later:

<tool_call>weather
<arg_key>city</arg_key>
<arg_value>Rome</arg_value>
</tool_call>
"""

from functools import partial

from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.xml.calls import XmlForm
from pando_worker.parsers.xml.grammar import xml_grammar

_FORM = XmlForm(
    opening="<tool_call>",
    function="{}",
    parameter="<arg_key>{}</arg_key>{}<arg_value>",
    parameter_end="</arg_value>",
    function_end="</tool_call>",
    closing="",
    after_opening="",
    around="",
)
_ARGUMENT_TAGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

GLM45 = ToolFormat(
    name="glm45",
    help="`<tool_call>…<arg_key>…</arg_key><arg_value>…</arg_value></tool_call>`",
    models="GLM 4.5 and later",
    speaks=lambda template: _FORM.opening in template and "<arg_key>" in template,
    markers=(_FORM.opening, _FORM.function_end, *_ARGUMENT_TAGS),
    new_parser=_FORM.parser,
    grammar=partial(xml_grammar, _FORM),
    new_id=long_id,
)
