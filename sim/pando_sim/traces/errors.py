"""Errors in traces, with their place."""

from pathlib import Path


class TraceError(Exception):
    """The trace cannot be read; the message names the file, the line and the problem."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        """`line` counts from 1; None if the whole file is wrong."""
        place = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{place}: {what}")


class LineError(TraceError):
    """One line cannot be played; the lines around it can."""

    def __init__(self, path: Path, line: int, what: str, reason: str | None = None) -> None:
        """`reason` names the kind of fault without the line's values, to count lines by it; None if
        `what` has no values."""
        super().__init__(path, line, what)
        self.path = path
        self.line = line
        self.reason = reason or what
