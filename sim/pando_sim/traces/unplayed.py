"""Lines of a trace that cannot be played: counted by reason, or refused."""

from collections import Counter
from pathlib import Path

from pando_sim.traces.errors import LineError


class Unplayed:
    """A line counts once, however often the trace is read."""

    def __init__(self, strict: bool) -> None:
        """`strict`: the first such line ends the reading."""
        self._strict = strict
        self._last: dict[Path, int] = {}  # the last line counted
        self.lines: Counter[str] = Counter()  # by reason
        self.first = ""  # the first such line's place and problem

    def add(self, error: LineError) -> None:
        """Raises the error if reading is strict."""
        if self._strict:
            raise error
        if error.line <= self._last.get(error.path, 0):
            return
        self._last[error.path] = error.line
        self.lines[error.reason] += 1
        self.first = self.first or str(error)
