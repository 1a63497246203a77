"""The parser of a whole output: reasoning first, then tool calls in the remaining text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pando_worker.parsers.pieces import CallStart, Content, Piece, TextParser


@dataclass(frozen=True, slots=True)
class OutputParser:
    """Without a reasoning and a tool parser, all text is content."""

    reasoning: TextParser | None
    calls: TextParser | None
    call_ids: Sequence[str] = ()  # of the first calls, where another worker began the answer

    def push(self, text: str) -> list[Piece]:
        if not text:
            return []
        return self._calls_in(self.reasoning.push(text) if self.reasoning else [Content(text)])

    def flush(self) -> list[Piece]:
        pieces = self._calls_in(self.reasoning.flush() if self.reasoning else [])
        return pieces + (self._named(self.calls.flush()) if self.calls else [])

    def _calls_in(self, pieces: Iterable[Piece]) -> list[Piece]:
        if self.calls is None:
            return list(pieces)
        read: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, Content):
                read += self._named(self.calls.push(piece.text))
            else:
                read.append(piece)
        return read

    def _named(self, pieces: list[Piece]) -> list[Piece]:
        """The pieces of calls, of which the first have the given ids."""
        if not self.call_ids:
            return pieces
        return [
            replace(piece, id=self.call_ids[piece.index])
            if isinstance(piece, CallStart) and piece.index < len(self.call_ids)
            else piece
            for piece in pieces
        ]
