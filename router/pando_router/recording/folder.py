"""The recordings in a router's folder: its own, and on a shared volume those of other routers, also
of those that have ended."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pando_router.recording.files import DAY_S, header_of
from pando_router.recording.form import Header

MOST_FILES = 10_000  # in one answer


@dataclass(frozen=True, slots=True)
class Found:
    path: Path
    header: Header
    size: int
    changed: float  # Unix time


def recordings(record: Path) -> list[Found]:
    """Those beside `record`, the oldest first."""
    found = sorted(_found(record), key=lambda one: (one.header.started, one.path.name))
    return found[-MOST_FILES:]


def delete_old(record: Path, days: float, now: float) -> None:
    """Deletes the recordings that began more than `days` ago. Raises OSError."""
    for one in recordings(record):
        if now - one.header.started > DAY_S * days:
            one.path.unlink(missing_ok=True)


def _found(record: Path) -> Iterator[Found]:
    """Files whose name has the ending of `record`, perhaps with a number behind, and that begin
    like a recording."""
    for path in record.parent.glob(f"*{record.suffix}*"):
        ending = path.name.rpartition(record.suffix)[2] if record.suffix else ""
        if ending and not ending[1:].isdecimal():
            continue
        header = header_of(path)
        if header is None or not header.file:
            continue
        try:
            status = path.stat()
        except OSError:  # deleted meanwhile
            continue
        yield Found(path, header, status.st_size, status.st_mtime)
