"""GBNF, the grammar notation of llama.cpp, SGLang ("EBNF") and xgrammar, as llguidance's Lark.

llguidance parses in two stages: a lexer matches terminals, each as long as it can, and a parser
puts them together. GBNF knows no terminals, its grammars are read character by character. So
everything that a regular expression can say becomes one terminal, as large as can be: a grammar
without recursion is a single one and means exactly what it says; elsewhere a terminal that could
end in several places ends in the last. llguidance brings a converter in Python; this one is linear
in the grammar's size, and keeps characters that are written as numbers.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

_MAX_NESTING = 64
_LARK = re.compile(r"(?m)^\s*(?:%llguidance\b|start\s*:)")
_TOKEN = re.compile(
    r"""
      (?P<blank> \s+ | \#[^\n]* )
    | (?P<head> (?P<rule>[A-Za-z_][\w-]*) \s* ::= )
    | (?P<name> [A-Za-z_][\w-]* )
    | (?P<string> "(?:[^"\\]|\\.)*" )
    | (?P<set> \[(?:[^\]\\]|\\.)*\] )
    | (?P<repeat> [*+?] | \{\s*\d{1,6}\s*(?:,\s*(?:\d{1,6}\s*)?)?\} )
    | (?P<sign> [().|] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_CHARACTER = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|(.)", re.DOTALL
)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def gbnf_to_lark(text: str) -> str:
    """Text that is Lark already, by a line `%llguidance` or `start:`, is left as it is.

    Raises ValueError, which says where, for a text that is neither.
    """
    if _LARK.search(text):
        return text
    rules = _Parser(text).rules()
    for rule in rules.values():
        for name in rule.names():
            if name not in rules:
                raise ValueError(f"rule {name!r} is used but not defined")
    if "root" not in rules:
        raise ValueError("there is no rule 'root'")
    return _Writer(rules).lark()


@dataclass(slots=True)
class _Node:
    """A part of a rule's right side."""

    kind: str  # "terminal", "name", "sequence", "choice" or "repeat"
    text: str = ""  # a terminal in Lark, a rule's name, or how often a part is repeated
    parts: list["_Node"] = field(default_factory=list)

    def names(self) -> Iterator[str]:
        """Rules that this uses."""
        if self.kind == "name":
            yield self.text
        for part in self.parts:
            yield from part.names()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def rules(self) -> dict[str, _Node]:
        rules: dict[str, _Node] = {}
        while self._at < len(self._tokens):
            kind, name, _ = self._next()
            if kind != "head":
                raise self._error("expected a rule, as in `name ::=`", self._at - 1)
            if name in rules:
                raise self._error(f"rule {name!r} is defined twice", self._at - 1)
            rules[name] = self._choice(0)
            if self._peek() == ")":
                raise self._error("this ) closes nothing", self._at)
        if not rules:
            raise ValueError("there are no rules")
        return rules

    def _choice(self, nesting: int) -> _Node:
        parts = [self._sequence(nesting)]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._sequence(nesting))
        return parts[0] if len(parts) == 1 else _Node("choice", parts=parts)

    def _sequence(self, nesting: int) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._tokens) and self._peek() not in ("|", ")", "head"):
            part = self._item(nesting)
            if self._peek() == "repeat":
                part = _Node("repeat", re.sub(r"\s", "", self._next()[1]), [part])
            parts.append(part)
        return parts[0] if len(parts) == 1 else _Node("sequence", parts=parts)

    def _item(self, nesting: int) -> _Node:
        kind, text, _ = self._next()
        match kind:
            case "name":
                return _Node("name", text)
            case "string":
                characters = "".join(char for char, _ in _characters(text[1:-1]))
                return _Node("terminal", json.dumps(characters, ensure_ascii=False))
            case "set":
                return _Node("terminal", _set(text[1:-1]))
            case ".":
                return _Node("terminal", "/(?s:.)/")
            case "(" if nesting < _MAX_NESTING:
                inner = self._choice(nesting + 1)
                if self._peek() != ")":
                    raise self._error("expected )", self._at)
                self._at += 1
                return inner
            case "(":
                raise self._error(f"nested deeper than {_MAX_NESTING}", self._at - 1)
            case _:
                raise self._error("there is nothing to repeat", self._at - 1)

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _next(self) -> tuple[str, str, int]:
        self._at += 1
        return self._tokens[self._at - 1]

    def _error(self, message: str, at: int) -> ValueError:
        where = f"line {self._tokens[at][2]}" if at < len(self._tokens) else "the end"
        return ValueError(f"{message} at {where}")


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and line; a sign is its own kind."""
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise ValueError(f"cannot read {text[at : at + 20]!r} at line {line}")
        match found.lastgroup:
            case "blank":
                pass
            case "head":
                yield "head", found["rule"], line
            case "sign":
                yield found[0], found[0], line
            case kind:
                yield kind, found[0], line
        line += found[0].count("\n")
        at = found.end()


def _characters(text: str) -> Iterator[tuple[str, bool]]:
    """Of a string or a set, and whether each was written as an escape."""
    for found in _CHARACTER.finditer(text):
        digits = found[1] or found[2] or found[3]
        if digits is None:
            yield (_ESCAPED.get(found[4], found[4]), True) if found[4] else (found[5], False)
            continue
        code = int(digits, 16)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise ValueError(f"{found[0]} is not a character")
        yield chr(code), True


def _set(text: str) -> str:
    """A set of characters as a regular expression that has every character as a number."""
    negated = text.startswith("^")
    characters = list(_characters(text[negated:]))
    if not characters:
        raise ValueError(f"[{text}] has no characters")
    ranges, at = [], 0
    while at < len(characters):
        first = last = characters[at][0]
        if at + 2 < len(characters) and characters[at + 1] == ("-", False):
            last = characters[at + 2][0]
            at += 2
        if last < first:
            raise ValueError(f"[{text}] has a range that ends before it begins")
        ranges.append(f"\\x{{{ord(first):x}}}-\\x{{{ord(last):x}}}")
        at += 1
    return f"/[{'^' if negated else ''}{''.join(ranges)}]/"


class _Writer:
    def __init__(self, rules: dict[str, _Node]) -> None:
        self._rules = rules
        self._regular = _regular_rules(rules)
        numbers = {name: number for number, name in enumerate(rules)}
        self._names = {
            name: f"{'T' if name in self._regular else 'r'}_{number}"
            for name, number in numbers.items()
        }
        self._lines: list[str] = []

    def lark(self) -> str:
        self._lines = ["start: " + self._names["root"]]
        for name, rule in self._rules.items():
            text = self._terminal(rule) if name in self._regular else self._rule(rule)
            self._lines.append(f"{self._names[name]}: {text}")
        return "\n".join(self._lines) + "\n"

    def _terminal(self, node: _Node) -> str:
        match node.kind:
            case "terminal":
                return node.text
            case "name":
                return self._names[node.text]
            case "sequence":
                return " ".join(map(self._terminal, node.parts)) or '""'
            case "choice":
                return f"({' | '.join(map(self._terminal, node.parts))})"
            case _:
                return f"({self._terminal(node.parts[0])}){node.text}"

    def _rule(self, node: _Node) -> str:
        """As `_terminal`, with each part that is regular as one terminal."""
        if self._is_regular(node):
            return self._terminal(node) if node.kind == "name" else self._extracted(node)
        match node.kind:
            case "name":
                return self._names[node.text]
            case "sequence":
                return " ".join(map(self._rule, self._joined(node)))
            case "choice":
                return f"({' | '.join(map(self._rule, self._joined(node)))})"
            case _:
                return f"({self._rule(node.parts[0])}){node.text}"

    def _joined(self, node: _Node) -> Iterator[_Node]:
        """The parts, those that stand side by side and are regular as one."""
        for regular, parts in groupby(node.parts, self._is_regular):
            if regular:
                yield _Node(node.kind, parts=list(parts))
            else:
                yield from parts

    def _extracted(self, node: _Node) -> str:
        name = f"T_{len(self._lines)}_PART"
        self._lines.append(f"{name}: {self._terminal(node)}")
        return name

    def _is_regular(self, node: _Node) -> bool:
        return all(name in self._regular for name in node.names())


def _regular_rules(rules: dict[str, _Node]) -> set[str]:
    """Rules that do not come to themselves again, nor use one that does."""
    used_by = defaultdict(list)
    waits_for: dict[str, int] = {}
    for name, rule in rules.items():
        used = set(rule.names())
        waits_for[name] = len(used)
        for other in used:
            used_by[other].append(name)
    ready = [name for name, count in waits_for.items() if count == 0]
    regular = set()
    while ready:
        name = ready.pop()
        regular.add(name)
        for user in used_by[name]:
            waits_for[user] -= 1
            if waits_for[user] == 0:
                ready.append(user)
    return regular
