"""What was simulated, one JSON line each, so that a run that was cut off goes on where it was."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One placement in one cell."""

    cell: str
    policy: str
    command: str  # that simulates it again
    requests: int
    goodput: float
    hit_rate: float
    ttft_p50_s: float
    ttft_p99_s: float
    gap_p99_s: float
    load_spread: float
    lost: int


class Results:
    """A file of them; the last line of a cell and placement counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = {(one.cell, one.policy): one for one in self._read()}

    def has(self, cell: str, policy: str) -> bool:
        return (cell, policy) in self._found

    def of(self, cell: str) -> Mapping[str, Result]:
        """By placement."""
        return {policy: one for (name, policy), one in self._found.items() if name == cell}

    def add(self, result: Result) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")
        self._found[result.cell, result.policy] = result

    def _read(self) -> Iterator[Result]:
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                yield msgspec.json.decode(line, type=Result)
