"""Simulated results, one per JSON line, so that an interrupted run continues where it was."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of a play, or the means of several plays."""

    goodput: float
    hit_rate: float
    ttft_p50_s: float
    ttft_p99_s: float
    gap_p99_s: float
    load_spread: float


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in one cell, at a share of the cell's load."""

    cell: str
    policy: str
    share: float
    command: str  # simulates it again
    requests: int
    lost: int
    measures: Measures


class Results:
    """A file of plays; the last line of each cell, policy and share counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = {(one.cell, one.policy, one.share): one for one in self._read()}

    def has(self, cell: str, policy: str, share: float) -> bool:
        return (cell, policy, share) in self._found

    def of(self, cell: str) -> Mapping[str, Measures]:
        """The means of the plays, by policy."""
        plays: dict[str, list[Measures]] = {}
        for (name, policy, _), play in self._found.items():
            if name == cell:
                plays.setdefault(policy, []).append(play.measures)
        return {policy: mean_of(every) for policy, every in plays.items()}

    def add(self, play: Play) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(play) + b"\n")
        self._found[play.cell, play.policy, play.share] = play

    def _read(self) -> Iterator[Play]:
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                yield msgspec.json.decode(line, type=Play)


def mean_of(every: Sequence[Measures]) -> Measures:
    names = Measures.__struct_fields__
    return Measures(**{name: fmean(getattr(one, name) for one in every) for name in names})
