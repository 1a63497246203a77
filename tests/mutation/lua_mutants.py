"""Mutants of a Redis script, by tokens, as Python has no parser for these files."""

import re
from collections.abc import Iterator

from tests.mutation.mutant import Mutant

_SWAPS = {
    rb"<=": ("comparison", b"<"),
    rb">=": ("comparison", b">"),
    rb"==": ("comparison", b"~="),
    rb"~=": ("comparison", b"=="),
    rb"<": ("comparison", b"<="),
    rb">": ("comparison", b">="),
    rb"+": ("arithmetic", b"-"),
    rb"-": ("arithmetic", b"+"),
    rb"*": ("arithmetic", b"/"),
    rb"/": ("arithmetic", b"*"),
    rb"max": ("arithmetic", b"min"),
    rb"min": ("arithmetic", b"max"),
    rb"and": ("logic", b"or"),
    rb"or": ("logic", b"and"),
    rb"not": ("logic", b""),
}
# Strings and comments come first, so that their content is not split into tokens.
_TOKEN = re.compile(
    rb"""--[^\n]*|'[^'\n]*'|"[^"\n]*"|(?P<number>\b\d+(\.\d+)?\b)"""
    rb"""|(?P<swap><=|>=|==|~=|(?<=\s)[<>+*/-](?=\s)|\b(max|min|and|or|not)\b)"""
)
_CALL = re.compile(
    rb"^[ ]*(?P<call>redis\.call\(.*\)|[a-z_]+\([^=\n]*\))[ ]*(--.*)?$", re.MULTILINE
)


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    for found in _TOKEN.finditer(source):
        if (number := found["number"]) is not None:
            changed = str(float(number) + 1 if b"." in number else int(number) + 1).encode()
            yield Mutant(file, "constant", *found.span("number"), changed)
        elif (token := found["swap"]) is not None:
            kind, changed = _SWAPS[token]
            yield Mutant(file, kind, *found.span("swap"), changed)
    for found in _CALL.finditer(source):
        yield Mutant(file, "call", *found.span("call"), b"")
