"""`Format`: what a trace's lines are, and how its first line shows that."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pando_sim.session import Session
from pando_sim.traces.rows import Reading, Row
from pando_sim.traces.unplayed import Unplayed


@dataclass(frozen=True, slots=True)
class FirstLine:
    text: bytes
    fields: frozenset[str]  # of the JSON object that it is; empty if it is none

    @classmethod
    def of(cls, text: bytes) -> "FirstLine":
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found = None
        return cls(text, frozenset(found) if isinstance(found, dict) else frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Goes to other processes with its trace, so its functions have names."""

    name: str
    help: str
    fields: str = ""  # of its lines, for people
    begins: Callable[[FirstLine], bool]  # whether a first line is of this format
    # A file's requests, whose own numbers begin at the third argument. None: it has sessions.
    rows: Callable[[Path, Reading, int, Unplayed], Iterator[Row]] | None = None
    # Its sessions, with the same number, and how often they were read before. None: it has rows.
    sessions: Callable[[Path, Reading, int, int, Unplayed], Iterator[Session]] | None = None
    names_models: bool = False

    @property
    def in_words(self) -> str:
        return f"{self.help}: {self.fields}" if self.fields else self.help
