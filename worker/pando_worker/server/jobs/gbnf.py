"""Translates GBNF, the notation of llama.cpp, SGLang ("EBNF") and xgrammar, into llguidance's Lark.

llguidance parses in two stages: a lexer matches terminals, each as long as possible, and a parser
combines them. GBNF has no terminals; its grammars are read character by character. So everything
that a regular expression can express becomes one terminal, as large as possible: a grammar without
recursion is a single terminal and keeps its exact meaning; elsewhere, a terminal that could end in
several places ends in the last.

llguidance's own converter gets a simplified GBNF. Without that it misreads escapes (`"\\u00e9"`,
`"\\x41"`, `[\\-]`), excludes newlines from `.`, ends a rule at the end of its line, and confuses
names that differ only in case or in `-` and `_`. This module also marks the regular rules, which
the converter would need quadratic time to find, and puts the regular parts of other rules into
terminals.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from operator import methodcaller

from llguidance.gbnf_to_lark import (
    AlternativeNode,
    ASTNode,
    GrammarParser,
    RepetitionNode,
    RuleRefNode,
    SequenceNode,
    is_lark_syntax,
    resolve,
)

_MAX_NESTING = 64
_TOKEN = re.compile(
    r"""
      (?P<blank> \s+ | \#[^\n]* )
    | (?P<head> [A-Za-z_][\w-]* ) \s* ::=
    | (?P<name> [A-Za-z_][\w-]* )
    | " (?P<string> (?:[^"\\]|\\.)* ) "
    | \[ (?P<set> (?:[^\]\\]|\\.)* ) \]
    | (?P<repeat> [*+?] | \{\s*\d{1,6}\s*(?:,\s*(?:\d{1,6}\s*)?)?\} )
    | (?P<sign> [().|] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_CHARACTER = re.compile(
    r"\\x[\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\U[\da-fA-F]{8}|\\?.", re.DOTALL | re.ASCII
)
_RANGE = re.compile(f"({_CHARACTER.pattern})(?:-({_CHARACTER.pattern}))?", re.DOTALL | re.ASCII)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_SPECIAL = frozenset('"\\[]/^-&~')  # in a string or a set, of GBNF or of a regular expression


def gbnf_to_lark(text: str) -> str:
    """Text that is already Lark, recognized by a line `%llguidance` or `start:`, is not changed.

    Raises ValueError, with the line, for a text that is neither.
    """
    if is_lark_syntax(text):
        return text
    plain = _plain(text)
    # In parentheses, the end of a line does not end the rule.
    lines = [f"{name} ::= ({' '.join(words)})\n" for name, words in plain.items()]
    rules = GrammarParser().parse("".join(lines))
    for name in _regular({name: plain.keys() & words for name, words in plain.items()}):
        rules[name].rule_is_terminal = name != "root"
    resolve(rules)
    terminals: list[str] = []
    for rule in rules.values():
        if not rule.rule_is_terminal:
            rule.alternatives = _extracted(rule.alternatives, terminals)
    return "\n".join([*map(str, rules.values()), *terminals, ""])


def _plain(text: str) -> dict[str, list[str]]:
    """The tokens of each rule, with new rule names, and a `root` that only refers to the root."""
    names: defaultdict[str, str] = defaultdict(lambda: f"r{len(names)}")
    rules: dict[str, list[str]] = {"root": [names["root"]]}
    words: list[str] = []
    open_groups = 0
    for kind, token, line in _tokens(text):
        match kind:
            case "head" if open_groups:
                raise ValueError(f"expected ) at line {line}")
            case "head" if names[token] in rules:
                raise ValueError(f"rule {token!r} is defined twice at line {line}")
            case "head":
                words = rules[names[token]] = []
                continue
            case _ if len(rules) == 1:
                raise ValueError(f"expected a rule, as in `name ::=`, at line {line}")
            case "repeat" if not words or words[-1][0] in "(|*+?{":
                raise ValueError(f"there is nothing to repeat at line {line}")
            case "(" if open_groups == _MAX_NESTING:
                raise ValueError(f"nested deeper than {_MAX_NESTING} at line {line}")
            case "(":
                open_groups += 1
            case ")" if not open_groups:
                raise ValueError(f"this ) closes nothing at line {line}")
            case ")":
                open_groups -= 1
                if words[-1][-1] in "*+?}":
                    words.append('""')  # otherwise llguidance writes ("a"+)? as "a"+?
            case "name":
                token = names[token]
            case "string":
                token = f'"{"".join(map(_plainly, _CHARACTER.findall(token)))}"'
            case "set":
                token = _set(token)
            case ".":
                token = "[\\x00-\U0010ffff]"
        words.append(token)
    if open_groups:
        raise ValueError("expected ) at the end")
    if names["root"] not in rules:
        raise ValueError("there is no rule 'root'")
    for token, name in names.items():
        if name not in rules:
            raise ValueError(f"rule {token!r} is used but not defined")
    return rules


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and line of each token; a sign is its own kind."""
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or (kind := found.lastgroup) is None:
            raise ValueError(f"cannot read {text[at : at + 20]!r} at line {line}")
        if kind != "blank":
            yield found[0] if kind == "sign" else kind, found[kind], line
        line += found[0].count("\n")
        at = found.end()


def _set(written: str) -> str:
    members = written.removeprefix("^")
    ranges = (
        f"{_plainly(first)}-{_plainly(last or first)}" for first, last in _RANGE.findall(members)
    )
    return f"[{'^' * (members != written)}{''.join(ranges)}]"


def _plainly(written: str) -> str:
    """One character of a string or a set; as \\x.. if it has a special meaning."""
    character = written
    if len(written) > 2:
        code = int(written[2:], 16)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise ValueError(f"{written} is not a valid character")
        character = chr(code)
    elif len(written) == 2:
        character = _ESCAPED.get(written[1], written[1])
    return f"\\x{ord(character):02x}" if character < " " or character in _SPECIAL else character


def _regular(uses: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Rules that are not recursive, and use no recursive ones."""
    order = TopologicalSorter(uses)
    with suppress(CycleError):
        order.prepare()
    while ready := order.get_ready():
        yield from ready
        order.done(*ready)


def _extracted(node: ASTNode, terminals: list[str]) -> ASTNode:
    """A rule's right side with its regular parts as terminals, as large as possible."""
    if isinstance(node, RuleRefNode):
        return node
    if node.is_terminal():
        terminals.append(f"PART_{len(terminals)}: {node}")
        return RuleRefNode(terminals[-1].partition(":")[0])
    match node:
        case SequenceNode(nodes):
            return SequenceNode([_extracted(part, terminals) for part in _joined(node, nodes)])
        case AlternativeNode(nodes):
            return AlternativeNode([_extracted(part, terminals) for part in _joined(node, nodes)])
        case RepetitionNode(repeated, least, most):
            return RepetitionNode(_extracted(repeated, terminals), least, most)
    raise TypeError(f"unknown part of a grammar: {node!r}")


def _joined(node: SequenceNode | AlternativeNode, parts: list[ASTNode]) -> Iterator[ASTNode]:
    """The parts of a node, with adjacent regular ones joined."""
    for regular, run in groupby(parts, methodcaller("is_terminal")):
        if regular:
            yield type(node)(list(run))
        else:
            yield from run
