"""`Rule`: a condition on several fields of one part of a WorkerPool.

A part states each rule once, in CEL (`SpecPart.rules`). The CRD contains it, so API servers from
1.25 on check it; `parse` evaluates the same text, so it holds on any server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cel


@dataclass(frozen=True, slots=True)
class Rule:
    field: str  # the field to blame, relative to the part; "": the part itself
    words: str  # complete the sentence that begins with the field
    cel: str  # `self` is the part, with its defaults

    @property
    def message(self) -> str:
        """The message that the API server shows after the part's path."""
        return f"{self.field} {self.words}".lstrip()


def broken(rules: tuple[Rule, ...], part: Mapping[str, Any]) -> list[Rule]:
    """The rules that a part breaks; `part` is in wire format, with its defaults."""
    held = _program(rules).execute({"self": part})
    return [rule for rule, holds in zip(rules, held, strict=True) if holds is not True]


@cache
def _program(rules: tuple[Rule, ...]) -> "cel.Program":
    """One program for all rules: an evaluation takes 0.5 ms whatever it contains."""
    # Imported here: the package loads its shell with a prompt, and many commands check no pool.
    import cel

    return cel.compile(f"[{', '.join(f'({rule.cel})' for rule in rules)}]")
