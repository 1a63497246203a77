"""The tool calls of gpt-oss, in OpenAI's harmony format, on the channel `commentary`:
`<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>`.

The other channels are read by the reasoning format of the same name.
"""

import re
from collections.abc import Mapping, Sequence

from pando_worker.parsers import lark
from pando_worker.parsers.formats import ToolFormat, long_id
from pando_worker.parsers.headed import NAME, HeadedForm
from pando_worker.parsers.tools import Tool

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, RETURN, CALL = "<|end|>", "<|return|>", "<|call|>"
TOKENS = (START, CHANNEL, CONSTRAIN, MESSAGE, END, RETURN, CALL)
TO = f"{CHANNEL}commentary to=functions."


_FORM = HeadedForm(
    begin=TO,
    head=re.compile(
        rf"{NAME}\s*(?:(?:{re.escape(CONSTRAIN)})?\s*\w{{1,16}})?\s*{re.escape(MESSAGE)}\s*",
        re.ASCII,
    ),
    closings=(CALL, END, f"{START}assistant"),
)


def _grammar(tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool) -> str:
    """One call an output, since the model ends there; a preamble for the user may precede it."""
    channel, final, preamble, next_channel, call_end = (
        lark.spelled(text, special_tokens)
        for text in (
            CHANNEL,
            f"final{MESSAGE}",
            f"commentary{MESSAGE}",
            f"{END}{START}assistant{CHANNEL}",
            CALL,
        )
    )
    calls = []
    for tool in tools:
        head = f"commentary to=functions.{tool.name} {CONSTRAIN}json{MESSAGE}"
        value = lark.json_value(tool.parameters, strict=tool.strict)
        calls.append(f"{lark.spelled(head, special_tokens)} {value}")
    return "\n".join(
        [
            f"calls: {channel} call",
            f"text_or_calls: {channel} (final TEXT | call | {preamble} TEXT {next_channel} rest)",
            "rest: final TEXT | call",
            f"final: {final}",
            f"call: ({' | '.join(calls)}) {call_end}?",
            "TEXT: /(?s:.*)/",
        ]
    )


GPT_OSS = ToolFormat(
    name="gpt_oss",
    help="`<|channel|>commentary to=functions.… <|constrain|>json<|message|>{…}<|call|>`",
    models="gpt-oss",
    speaks=lambda template: CHANNEL in template and "functions." in template,
    markers=TOKENS,
    new_parser=lambda tools, new_id: _FORM.parser(new_id),
    grammar=_grammar,
    new_id=long_id,
    begins_with=lambda tools: (TO,),
    before_answer=f"{CHANNEL}final{MESSAGE}",
)
