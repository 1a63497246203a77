"""Reads an output that a grammar keeps to either calls or an answer of a form of its own."""

from collections.abc import Sequence

from pando_worker.parsers.pieces import Content, Piece, TextParser


class CallsOrAnswer:
    """A `TextParser`. The output is calls if it begins as they do; otherwise all of it is the
    answer, whatever stands in it."""

    def __init__(self, begins: Sequence[str], calls: TextParser) -> None:
        self._begins = begins
        self._calls = calls
        self._read = ""  # while undecided
        self._is_answer: bool | None = None

    def push(self, text: str) -> list[Piece]:
        if self._is_answer is None:
            text, self._read = self._read + text, ""
            if text.startswith(tuple(self._begins)):
                self._is_answer = False
            elif any(begin.startswith(text) for begin in self._begins):
                self._read = text
                return []
            else:
                self._is_answer = True
        return [Content(text)] if self._is_answer else self._calls.push(text)

    def flush(self) -> list[Piece]:
        if self._is_answer is False:
            return self._calls.flush()
        return [Content(self._read)] if self._read else []
