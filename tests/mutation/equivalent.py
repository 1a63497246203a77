"""The mutants of equivalent.toml, which change no visible behaviour."""

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutant import Mutant

_LISTED = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True, slots=True)
class Change:
    """A mutant's change, in a form that survives edits elsewhere in its file."""

    file: str
    was: str
    becomes: str


def change(mutant: Mutant, source: bytes) -> Change:
    _, was, becomes = mutant.lines(source)
    return Change(mutant.file, was, becomes)


def read(path: Path = _LISTED) -> set[Change]:
    """Raises KeyError if an entry lacks a field, ValueError if it gives no reason."""
    listed = tomllib.loads(path.read_text())["mutants"]
    for one in listed:
        if not one["because"].strip():
            raise ValueError(f"{path.name}: {one['was']!r} of {one['file']} needs a reason")
    return {Change(one["file"], one["was"], one["becomes"]) for one in listed}


def stale(known: Iterable[Change], possible: Collection[Change]) -> list[Change]:
    """Entries that no mutant makes any more, because the lines have changed or gone."""
    return [one for one in known if one not in possible]
