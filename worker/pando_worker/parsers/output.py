"""The parser of a whole output: reasoning first, then tool calls in the remaining text."""

from collections.abc import Iterable
from dataclasses import dataclass

from pando_worker.parsers.pieces import Content, Piece, TextParser


@dataclass(frozen=True, slots=True)
class OutputParser:
    """Without a reasoning and a tool parser, all text is content."""

    reasoning: TextParser | None
    calls: TextParser | None

    def push(self, text: str) -> list[Piece]:
        if not text:
            return []
        return self._calls_in(self.reasoning.push(text) if self.reasoning else [Content(text)])

    def flush(self) -> list[Piece]:
        pieces = self._calls_in(self.reasoning.flush() if self.reasoning else [])
        return pieces + (self.calls.flush() if self.calls else [])

    def _calls_in(self, pieces: Iterable[Piece]) -> list[Piece]:
        if self.calls is None:
            return list(pieces)
        read: list[Piece] = []
        for piece in pieces:
            read += self.calls.push(piece.text) if isinstance(piece, Content) else [piece]
        return read
