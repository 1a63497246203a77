"""`Format`: what a trace's lines are, how its first line shows that, and what reads them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import msgspec

from pando_sim.session import Session
from pando_sim.traces.rows import Reading, Row
from pando_sim.traces.unplayed import Unplayed


@dataclass(frozen=True, slots=True)
class FirstLine:
    is_json: bool  # an object; otherwise it may be a CSV's header
    names: frozenset[str]  # of its fields, or of its columns

    @classmethod
    def of(cls, text: bytes) -> "FirstLine":
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found = None
        if isinstance(found, dict):
            return cls(True, frozenset(found))
        return cls(False, frozenset(column_names(text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads the lines of a format; one of both."""

    # A file's requests, whose own numbers begin at the third argument.
    rows: Callable[[Path, Reading, int, Unplayed], Iterator[Row]] | None = None
    # Its sessions, with the same number, and how often they were read before.
    sessions: Callable[[Path, Reading, int, int, Unplayed], Iterator[Session]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    name: str  # of its module, too
    help: str
    fields: str = ""  # of its lines, for people
    is_json: bool = True  # a JSON object per line; otherwise CSV
    # A first line is of this format if it has all names of one of these.
    shown_by: tuple[frozenset[str], ...]
    names_models: bool = False

    def reader(self) -> Reader:
        """Imports it."""
        reader: Reader = import_module(f"{__package__}.{self.name}").READER
        return reader

    def begins(self, first: FirstLine) -> bool:
        """Whether a first line is of this format."""
        is_alike = first.is_json == self.is_json
        return is_alike and any(names <= first.names for names in self.shown_by)

    @property
    def in_words(self) -> str:
        return f"{self.help}: {self.fields}" if self.fields else self.help


def column_names(header: bytes) -> list[str]:
    """Those of a CSV's first line, in order."""
    return [name.strip() for name in header.decode("utf-8-sig", "replace").split(",")]
