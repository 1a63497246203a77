"""`Rule`: what must hold between several fields of one part of a WorkerPool.

A part (`SpecPart.rules`) states each of its rules once, in CEL. The CRD has it, so that API servers
from 1.25 on check it; `parse` evaluates the same text, so that it holds on any server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import cel


@dataclass(frozen=True, slots=True)
class Rule:
    field: str  # what is wrong where the rule is broken, from its part on; "": the part itself
    words: str  # go on as the field's sentence
    cel: str  # `self` is the part, with its defaults

    @property
    def message(self) -> str:
        """As the API server shows it, behind the part's path."""
        return f"{self.field} {self.words}".lstrip()


def broken(rules: tuple[Rule, ...], part: Mapping[str, Any]) -> list[Rule]:
    """Those that do not hold of a part, which is as it is on the wire, with its defaults."""
    held = _program(rules).execute({"self": part})
    return [rule for rule, holds in zip(rules, held, strict=True) if holds is not True]


@cache
def _program(rules: tuple[Rule, ...]) -> cel.Program:
    """All in one: an evaluation takes 0.5 ms whatever it evaluates."""
    return cel.compile(f"[{', '.join(f'({rule.cel})' for rule in rules)}]")
