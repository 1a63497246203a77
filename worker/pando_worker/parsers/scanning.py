"""Finds the next marker, and the end of a JSON value, in text that is still arriving."""

import re

BLANKS = " \t\r\n"
MAX_BLANKS = 512
"""More white space than this, where a format allows some, is not part of the format."""

_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\]]')


class Until:
    """Reads text up to the first of some markers. Holds back text that may be a marker's beginning,
    and white space, which belongs to the format if it precedes the marker."""

    def __init__(self, *markers: str) -> None:
        self._markers = markers
        self._any = re.compile("|".join(map(re.escape, markers)))
        self._blanks: list[str] = []  # held back, before `_begun`
        self._begun = ""  # held back: a beginning of a marker
        self.marker = markers[0]  # that was found
        self.gap = ""  # white space before it

    def push(self, text: str) -> tuple[str, str | None]:
        """The text that is certainly before the marker, and the text after the marker, or None
        while none has been found. Starts again after a marker."""
        text, self._begun = self._begun + text, ""
        if found := self._any.search(text):
            before = self._without_blanks(text[: found.start()])
            self.marker, self.gap = found[0], "".join(self._blanks)
            self._blanks.clear()
            return before, text[found.end() :]
        certain = len(text) - max(overlap(text, marker) for marker in self._markers)
        self._begun = text[certain:]
        return self._without_blanks(text[:certain]), None

    def flush(self) -> str:
        """The text that was held back, at the end of the text."""
        held, self._begun = "".join(self._blanks) + self._begun, ""
        self._blanks.clear()
        return held

    def _without_blanks(self, text: str) -> str:
        """The text so far with the white space before it; white space at its end is held back."""
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
    """Finds the end of an object or array by its brackets and strings; does not validate it."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth  # brackets that are open
        self._in_string = False
        self._escaped = False

    def find(self, text: str) -> int:
        """Index after the bracket that closes the outermost one, in this next part of the text; -1
        if it is not there. The first character of the first part must be an opening bracket."""
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
