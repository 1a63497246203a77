"""What is wrong with a trace, and where."""

from pathlib import Path


class TraceError(Exception):
    """A trace that cannot be read; the message names the file, the line, and what is wrong."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        """`line` counts from 1; None where it is about the whole file."""
        place = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{place}: {what}")


class LineError(TraceError):
    """One line that cannot be played; the lines around it can."""

    def __init__(self, path: Path, line: int, what: str, reason: str | None = None) -> None:
        """`reason` names the kind of fault, without the line's own values: by it lines are counted.
        None where `what` has no such values."""
        super().__init__(path, line, what)
        self.path = path
        self.line = line
        self.reason = reason or what
