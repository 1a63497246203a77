"""First lines that agents write anew for every call. A prompt that begins with one shares nothing
with the session's earlier prompts, so routers leave it out of what they compare, and workers out of
what the model reads. It is meant for neither.

For another one add a row to FORMS, and to the tests.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from pando_fleet.canonical.marks import MESSAGE, TEXT
from pando_fleet.images.in_prefix import PrefixImage


class VolatileLine(NamedTuple):
    name: str
    begins: str  # the line, at the beginning of the first system message


FORMS = (
    # `x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch=36ee5;`, a block
    # of its own before the others: issues 24168 and 68900 of anthropics/claude-code.
    VolatileLine("claude-code", "x-anthropic-billing-header:"),
)

SYSTEM_ROLES = ("system", "developer")

_NAMES = {form.begins.encode(): form.name for form in FORMS}
# One match, because every request is looked at.
_BEGINNING = re.compile(
    MESSAGE
    + (b"(?:%b)" % b"|".join(role.encode() for role in SYSTEM_ROLES))
    + TEXT
    + (b"(?P<line>%b)" % b"|".join(map(re.escape, _NAMES)))
)
_MARKS = range(0xF5, 0x100)  # what precedes a text's neighbours, and is in no text
_AFTER_LINE = re.compile(rb"\n+|(?=[\xf5-\xff])")


def without_volatile_line(text: str) -> tuple[str, str | None]:
    """The first system message's text without such a line, and the name of its form; the same text
    and None if it does not begin with one."""
    for form in FORMS:
        if text.startswith(form.begins):
            return text.partition("\n")[2].lstrip("\n"), form.name
    return text, None


def prefix_without_volatile_line(
    data: bytes, images: Sequence[PrefixImage]
) -> tuple[bytes, tuple[PrefixImage, ...], str] | None:
    """Canonical bytes of a conversation without such a line, its images there, and the name of the
    form; None if its first message does not begin with one."""
    found = _BEGINNING.match(data, max(0, data.find(MESSAGE)))
    if found is None:
        return None
    text = found.start("line")
    after = _AFTER_LINE.search(data, text)
    place = after.end() if after else len(data)
    is_over = place == len(data) or data[place] in _MARKS  # the line was all of the text
    rest = data[: text - len(TEXT) if is_over else text] + data[place:]
    taken = len(data) - len(rest)
    return rest, tuple(one._replace(end=one.end - taken) for one in images), _NAMES[found["line"]]
