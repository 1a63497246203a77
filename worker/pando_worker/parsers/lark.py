"""Parts of grammars in llguidance's Lark syntax, which tool formats combine."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pando_worker.parsers.tools import Tool


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def marker(text: str, special_tokens: Mapping[str, int]) -> str:
    """A text that is one token of the model. A grammar refers to a special token by its id, since
    it has no text; any other added token matches its text."""
    token_id = special_tokens.get(text)
    return literal(text) if token_id is None else f"<[{token_id}]>"


def json_value(schema: Mapping[str, Any], *, strict: bool) -> str:
    """A JSON value of a schema, on one line in the style of Python's `json.dumps`, which chat
    templates show to models.

    Schema keywords that llguidance does not support are refused if `strict`, else ignored.
    """
    options = {
        "whitespace_flexible": False,
        "item_separator": ", ",
        "key_separator": ": ",
        "lenient": not strict,
    }
    return "%json " + json.dumps({**schema, "x-guidance": options})


def call_object(rule: str, tools: Sequence[Tool], arguments_key: str) -> str:
    """A rule for `{"name": ..., "<arguments_key>": {...}}` of any of the tools.

    Each schema is separate, not part of a schema of the object, since its references are relative
    to its own root.
    """
    objects = []
    for tool in tools:
        head = f'{{"name": {json.dumps(tool.name)}, "{arguments_key}": '
        value = json_value(tool.parameters, strict=tool.strict)
        objects.append(f"{literal(head)} {value} {literal('}')}")
    return f"{rule}: {' | '.join(objects)}"


def text_with(rule: str, opening: str, body: str, *, many: bool) -> str:
    """A rule for any text in which `body` follows every marker `opening`."""
    number = "*" if many else "?"
    end = "TEXT" if many else "TEXT?"
    if opening.startswith("<["):
        parts = [f"{rule}: ({rule}_part){number} {end}", f"{rule}_part: TEXT {opening} {body}"]
    else:
        parts = [
            f"{rule}: ({rule}_head {body}){number} {end}",
            f"{rule}_head[lazy]: TEXT {opening}",
        ]
    return "\n".join([*parts, "TEXT: /(?s:.*)/"])
