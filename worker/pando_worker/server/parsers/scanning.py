"""The two questions that all parsers ask of text that is still coming: where is the next marker,
and where does this JSON value end?"""

import re

BLANKS = " \t\r\n"
_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["{}\[\]]')


class Until:
    """Text up to a marker. What may be the marker's beginning is held back, and white space too: in
    front of the marker it is the format's, not the text's."""

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._held = ""
        self.gap = ""  # white space in front of the marker that was found

    def push(self, text: str) -> tuple[str, str | None]:
        """Text that stands before the marker for certain, and what follows the marker, None as long
        as there was none. Starts anew after a marker."""
        held = self._held + text
        at = held.find(self._marker)
        if at >= 0:
            before = held[:at].rstrip(BLANKS)
            self.gap = held[len(before) : at]
            self._held = ""
            return before, held[at + len(self._marker) :]
        certain = held[: len(held) - _overlap(held, self._marker)].rstrip(BLANKS)
        self._held = held[len(certain) :]
        return certain, None

    def flush(self) -> str:
        """What was held back: no marker comes any more."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, marker: str) -> int:
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
