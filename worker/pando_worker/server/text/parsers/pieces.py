"""What an output's text is made of once it was parsed: reasoning, content and tool calls.

A parser takes an output's text as it comes (`push`) and gives back `Piece`s; `flush` gives what was
held back. How the text was cut into pushes makes no difference: `Parsed` of the pieces, which puts
them together again, is always the same. Concatenated in order, pieces are what OpenAI streams.
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
    """A tool call begins. Nothing that is given back as content later is announced as a call."""

    index: int  # of the call within the output, from 0 on
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next part of a call's arguments, JSON text."""

    index: int
    text: str  # never empty


Piece = Reasoning | Content | CallStart | CallArguments


class TextParser(Protocol):
    def push(self, text: str) -> list[Piece]:
        """Pieces that are certain with this text."""
        ...

    def flush(self) -> list[Piece]:
        """The rest, at the output's end. The parser is used up."""
        ...


@dataclass(slots=True)
class Call:
    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Parsed:
    """An output's pieces put together."""

    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            match piece:
                case Reasoning(text):
                    self.reasoning += text
                case Content(text):
                    self.content += text
                case CallStart(_, id, name):
                    self.calls.append(Call(id, name))
                case CallArguments(index, text):
                    self.calls[index].arguments += text
