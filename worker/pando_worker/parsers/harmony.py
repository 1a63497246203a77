"""Reads the channels of gpt-oss, in OpenAI's harmony format: `analysis` is reasoning, `final` and
`commentary` are content, and a message to a function stays as it was written, for the tool parser.

    <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi!<|return|>
"""

import re

from pando_worker.parsers.families.gpt_oss import CALL, CHANNEL, END, MESSAGE, RETURN, START, TO
from pando_worker.parsers.pieces import Content, Piece, Reasoning
from pando_worker.parsers.scanning import BLANKS, MAX_BLANKS, Until

_CHANNEL = re.compile(rf"{re.escape(CHANNEL)}\s*(\w+)")
_TO = re.compile(r"to=functions\.([\w.-]{1,256})")
_BEGINNINGS = (START, CHANNEL, "to=")
_MAX_HEADER_CHARS = MAX_BLANKS


class HarmonyParser:
    """A `TextParser`. The prompt has written `<|start|>assistant`."""

    def __init__(self) -> None:
        self._unread = ""
        self._step = self._read_header
        self._body = _until_end()
        self._kind: type[Reasoning] | type[Content] = Content
        self._is_call = False
        self._pieces: list[Piece] = []

    def push(self, text: str) -> list[Piece]:
        self._unread += text
        while self._unread and self._step():
            pass
        return self._take()

    def flush(self) -> list[Piece]:
        if self._step == self._read_header:
            self._add(Content, self._unread)
        else:
            self._add(self._kind, self._body.flush() + self._unread)
        return self._take()

    def _read_header(self) -> bool:
        """From a message's beginning to its text; what is no header is content."""
        text = self._unread.lstrip(BLANKS)
        at = text.find(MESSAGE, 0, _MAX_HEADER_CHARS)
        if not any(text.startswith(known) or known.startswith(text) for known in _BEGINNINGS):
            self._begin(Content)
        elif at >= 0:
            self._unread = text[at + len(MESSAGE) :]
            self._read_kind(text[:at])
        elif len(self._unread) < _MAX_HEADER_CHARS:
            return False
        else:
            self._begin(Content)
        return True

    def _read_kind(self, header: str) -> None:
        if found := _TO.search(header):
            self._begin(Content)
            self._is_call = True
            self._add(Content, f"{TO}{found[1]} {MESSAGE}")
            return
        channel = _CHANNEL.search(header)
        self._begin(Reasoning if channel and channel[1] == "analysis" else Content)

    def _begin(self, kind: type[Reasoning] | type[Content]) -> None:
        self._kind, self._is_call, self._body = kind, False, _until_end()
        self._step = self._read_body

    def _read_body(self) -> bool:
        before, after = self._body.push(self._unread)
        self._add(self._kind, before)
        self._unread = after or ""
        if after is not None:
            if self._is_call:
                self._add(Content, CALL)
            begins = self._body.marker in (START, CHANNEL)  # the model left out the end
            self._unread = (self._body.marker if begins else "") + self._unread
            self._step = self._read_header
        return True

    def _add(self, kind: type[Reasoning] | type[Content], text: str) -> None:
        if text:
            self._pieces.append(kind(text))

    def _take(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces


def _until_end() -> Until:
    return Until(END, RETURN, CALL, START, CHANNEL)
