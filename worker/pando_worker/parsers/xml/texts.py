"""The grammar of a string that stands as plain text in a tag, and whose schema asks something of
it."""

import re
from collections.abc import Mapping
from typing import Any

from pando_fleet.http.errors import bad_request
from pando_worker.parsers import lark
from pando_worker.parsers.xml.calls import XmlForm

_ANY = "(?s:.*)"
_LAST_ANCHOR = re.compile(r"(?:^|[^\\])(?:\\\\)*\$$")


def shaped_text(schema: Mapping[str, Any], form: XmlForm, *, alone: bool) -> str:
    """What a terminal for the text and its closing tag is.

    Args:
        schema: with `pattern`, `minLength` or `maxLength`
        alone: whether the parameter can be nothing else than a string. Otherwise text in quotes
            would be read as JSON
    """
    fewest, most = schema.get("minLength", 0), schema.get("maxLength")
    if not isinstance(fewest, int) or not isinstance(most, int | None):
        raise bad_request("minLength and maxLength must be integers", "tools")
    # The closing tag ends the text. Without the tag's first character the text is cheap to check;
    # a complement of the whole tag takes seconds beside lengths. Without a newline of the form's
    # own, the parser would take one of the text's.
    within = rf"[^{form.parameter_end[0]}]" if form.around else rf"[^{form.parameter_end[0]}\n]"
    text = f"{within}{{{fewest},{'' if most is None else most}}}"
    allowed = [text] if "pattern" not in schema else [text, _whole(schema["pattern"])]
    if not alone:
        allowed.append(rf'(?:[^"\s]{_ANY})?')
    parts = " & ".join(map(lark.regex, allowed))
    return f"({parts}) {lark.literal(form.around + form.parameter_end)}"


def _whole(pattern: Any) -> str:
    """Matches whole texts in which the pattern is found. Where anchors stand in alternatives, it
    matches fewer."""
    if not isinstance(pattern, str):
        raise bad_request("pattern must be a string", "tools")
    last = _LAST_ANCHOR.search(pattern) is not None
    body = pattern.removeprefix("^")
    before = _ANY if body == pattern else ""
    return f"{before}(?:{body[:-1] if last else body}){'' if last else _ANY}"
