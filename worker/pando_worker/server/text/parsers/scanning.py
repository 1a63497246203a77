"""The two questions that all parsers ask of text that is still coming: where is the next marker,
and where does this JSON value end?"""

import re

BLANKS = " \t\r\n"
MAX_BLANKS = 512
"""More white space than this, where a format may have some, ends the format."""

_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\]]')


class Until:
    """Text up to a marker. What may be the marker's beginning is held back, and white space too: in
    front of the marker it is the format's, not the text's."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._blanks: list[str] = []  # held back, in front of `_begun`
        self._begun = ""  # held back: the marker's beginning
        self.gap = ""  # white space in front of the marker that was found

    def push(self, text: str) -> tuple[str, str | None]:
        """Text that stands before the marker for certain, and what follows the marker, None as long
        as there was none. Starts anew after a marker."""
        text, self._begun = self._begun + text, ""
        at = text.find(self._marker)
        if at >= 0:
            before = self._without_blanks(text[:at])
            self.gap = "".join(self._blanks)
            self._blanks.clear()
            return before, text[at + len(self._marker) :]
        certain = len(text) - overlap(text, self._marker)
        self._begun = text[certain:]
        return self._without_blanks(text[:certain]), None

    def flush(self) -> str:
        """What was held back: no marker comes any more."""
        held, self._begun = "".join(self._blanks) + self._begun, ""
        self._blanks.clear()
        return held

    def _without_blanks(self, text: str) -> str:
        """The text so far, with the white space before it; that at its end is held back."""
        stripped = text.rstrip(BLANKS)
        if stripped:
            stripped, text = "".join(self._blanks) + stripped, text[len(stripped) :]
            self._blanks.clear()
        self._blanks.append(text)
        return stripped


def overlap(text: str, marker: str) -> int:
    """Length of the longest end of `text` that is a beginning of `marker`."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0


class JsonEnd:
    """Finds where an object or array ends, by its brackets and strings; does not check it."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth  # brackets that are open
        self._in_string = False
        self._escaped = False

    def find(self, text: str) -> int:
        """Index after the bracket that closes the outermost one, in this next part of the text; -1
        where it is not in it. The first character ever given must be an opening bracket."""
        at = 0
        if self._escaped and text:
            self._escaped, at = False, 1
        while found := (_IN_STRING if self._in_string else _OUTSIDE).search(text, at):
            at = found.end()
            match found[0]:
                case "\\":
                    if at == len(text):
                        self._escaped = True
                        return -1
                    at += 1
                case '"':
                    self._in_string = not self._in_string
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth == 0:
                        return at
        return -1
