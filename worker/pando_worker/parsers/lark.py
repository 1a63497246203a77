"""Parts of grammars in llguidance's Lark syntax, which tool formats combine."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pando_worker.parsers.tools import Tool


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def regex(pattern: str) -> str:
    """A terminal for a pattern."""
    return (
        "/" + _BEYOND_REGEX.sub(lambda found: _REGEX_ESCAPES.get(found[0], found[0]), pattern) + "/"
    )


_BEYOND_REGEX = re.compile(r"\\.|[/\n\r]", re.DOTALL)  # escapes stay as they are
_REGEX_ESCAPES = {"/": r"\/", "\n": r"\n", "\r": r"\r"}


def marker(text: str, special_tokens: Mapping[str, int]) -> str:
    """A text that is one token of the model. A grammar refers to a special token by its id, since
    it has no text; any other added token matches its text."""
    token_id = special_tokens.get(text)
    return literal(text) if token_id is None else f"<[{token_id}]>"


def spelled(text: str, special_tokens: Mapping[str, int]) -> str:
    """A text that contains special tokens, as what a rule matches one after the other."""
    known = [token for token in special_tokens if token and token in text]
    if not known:
        return literal(text)
    parts = re.split(f"({'|'.join(map(re.escape, sorted(known, key=len, reverse=True)))})", text)
    return " ".join(marker(part, special_tokens) for part in parts if part)


def on_one_line(schema: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    """The schema, for JSON on one line in the style of Python's `json.dumps`, which chat templates
    show to models. Otherwise a small model writes white space between two tokens without end.

    Schema keywords that llguidance does not support are refused if `strict`, else ignored.
    """
    given = schema.get("x-guidance")
    options = {
        "whitespace_flexible": False,
        "item_separator": ", ",
        "key_separator": ": ",
        "lenient": not strict,
    }
    return {**schema, "x-guidance": {**(given if isinstance(given, dict) else {}), **options}}


def json_value(schema: Mapping[str, Any], *, strict: bool) -> str:
    """A JSON value of a schema; see `on_one_line`."""
    return "%json " + json.dumps(on_one_line(schema, strict=strict))


def call_head(tool: Tool, arguments_key: str) -> str:
    """A call's object up to its arguments."""
    return f'{{"name": {json.dumps(tool.name)}, "{arguments_key}": '


def call_object(rule: str, tools: Sequence[Tool], arguments_key: str) -> str:
    """A rule for `{"name": ..., "<arguments_key>": {...}}` of any of the tools.

    Each schema is separate, not part of a schema of the object, since its references are relative
    to its own root.
    """
    objects = []
    for tool in tools:
        value = json_value(tool.parameters, strict=tool.strict)
        objects.append(f"{literal(call_head(tool, arguments_key))} {value} {literal('}')}")
    return f"{rule}: {' | '.join(objects)}"


def text_with(rule: str, opening: str, body: str, *, many: bool) -> str:
    """A rule for any text in which `body` follows every marker `opening`. Unless `many`, at most
    one does, and it ends the text."""
    # A special token has no text, so it cannot end a terminal.
    head = f"{rule}_head{'' if opening.startswith('<[') else '[lazy]'}: TEXT {opening}"
    call = f"{rule}_head {body}"
    whole = f"({call})* TEXT" if many else f"TEXT | {call}"
    return "\n".join([f"{rule}: {whole}", head, "TEXT: /(?s:.*)/"])
