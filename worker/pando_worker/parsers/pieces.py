"""The pieces of a parsed output: reasoning, content and tool calls.

A parser takes an output's text as it arrives (`push`) and returns `Piece`s; `flush` returns the
rest that it held back. The result does not depend on how the text was cut into pushes: `Parsed`,
which joins the pieces, is always the same. In order, the pieces are the events that OpenAI streams.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str  # never empty


@dataclass(frozen=True, slots=True)
class Content:
    text: str  # never empty


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins. It is only emitted once it is certain that the text is a call."""

    index: int  # of the call within the output, from 0
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next part of a call's arguments, as JSON text."""

    index: int
    text: str  # never empty


Piece = Reasoning | Content | CallStart | CallArguments


class TextParser(Protocol):
    def push(self, text: str) -> list[Piece]:
        """The pieces that this text makes certain."""
        ...

    def flush(self) -> list[Piece]:
        """The rest, at the output's end. The parser cannot be used afterwards."""
        ...


@dataclass(slots=True)
class ParsedCall:
    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Parsed:
    """An output's pieces, joined."""

    reasoning: str = ""
    content: str = ""
    calls: list[ParsedCall] = field(default_factory=list)

    def add(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            match piece:
                case Reasoning(text):
                    self.reasoning += text
                case Content(text):
                    self.content += text
                case CallStart(_, id, name):
                    self.calls.append(ParsedCall(id, name))
                case CallArguments(index, text):
                    self.calls[index].arguments += text
