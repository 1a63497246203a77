"""`Mutant`: one change of a file that its tests should notice, and how a sample is drawn."""

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class Mutant:
    """The bytes from `begin` to `end` of `file` become `by`."""

    file: str  # from the root of the tree
    kind: str  # comparison, arithmetic, logic, call, constant
    begin: int
    end: int
    by: bytes

    def applied(self, source: bytes) -> bytes:
        return source[: self.begin] + self.by + source[self.end :]

    def lines(self, source: bytes) -> tuple[int, str, str]:
        """The number of its first line, and the lines that it changes, before and after, folded."""
        first = source.rfind(b"\n", 0, self.begin) + 1
        last = source.find(b"\n", self.end)
        last = len(source) if last < 0 else last
        before = source[first:last]
        after = source[first : self.begin] + self.by + source[self.end : last]
        return source.count(b"\n", 0, first) + 1, _folded(before), _folded(after)


def _folded(lines: bytes) -> str:
    return " ".join(lines.decode().split())


def sample(mutants: Iterable[Mutant], count: int, seed: str) -> list[Mutant]:
    """`count` of a file's mutants, equally many of each kind."""
    rng = random.Random(seed)
    by_kind: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_kind[mutant.kind].append(mutant)
    kinds = list(by_kind.values())
    for kind in kinds:
        rng.shuffle(kind)
    rng.shuffle(kinds)
    in_turn = [one for turn in zip_longest(*kinds) for one in turn if one is not None]
    return sorted(in_turn[:count], key=lambda mutant: mutant.begin)
