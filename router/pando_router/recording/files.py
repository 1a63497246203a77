"""The files of a recording: one that grows, and older ones (`FILE.1`, `FILE.2`, …)."""

import os
from io import FileIO
from pathlib import Path
from secrets import token_hex

import msgspec

from pando_router.recording.form import Header

DAY_S = 86_400.0


class Files:
    """`write` and `close` raise OSError; what was written before is kept.

    Only the owner may read the files. A file of an earlier process goes on if its router, or one
    with the same secret, wrote it; otherwise it becomes an older one.
    """

    def __init__(
        self, path: Path, header: Header, *, max_bytes: int, most: int, days: float = 7.0
    ) -> None:
        """
        Args:
            header: of each file, with a name of its own.
            max_bytes: after which a file ends.
            most: files that are kept.
            days: after which they are deleted, whatever their number.
        """
        self._path = path
        self._header = header
        self._max_bytes = max_bytes
        self._most = most
        # A file covers at most this, so that deleting whole files keeps the bound in days.
        self._lasts_s = DAY_S * days / (most + 1)
        self._file: FileIO | None = None
        self._size = 0  # of the file that grows; asking the file would take the interpreter's lock
        self._began = 0.0  # Unix time of the file that grows

    def write(self, lines: bytes, now: float) -> None:
        """Writes whole lines, which stay in one file: all of them or, with an OSError, none."""
        file = self._file or self._continued(now)
        if file is None or self._is_full(len(lines), now):
            file = self._begin(now)
        _append(file, lines, self._size)
        self._size += len(lines)

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def hide_behind(self, secret: str) -> None:
        """The secret of further lines: those of another one go to another file."""
        if secret == self._header.secret:
            return
        self.close()
        self._header = msgspec.structs.replace(self._header, secret=secret)

    def end_old(self, now: float) -> None:
        """Closes the file that grows if it has lasted long enough, with or without requests."""
        if self._file is not None and now - self._began > self._lasts_s:
            self.close()

    def _is_full(self, more: int, now: float) -> bool:
        return self._size + more > self._max_bytes or now - self._began > self._lasts_s

    def _continued(self, now: float) -> FileIO | None:
        """The file of an earlier process, if these lines belong there."""
        header = header_of(self._path)
        if header is None or not header.secret or header.secret != self._header.secret:
            return None
        if now - header.started > self._lasts_s or not _ends_with_a_line(self._path):
            return None
        self._file = FileIO(self._path, "ab")
        self._size = self._file.tell()
        self._began = header.started
        return self._file

    def _begin(self, now: float) -> FileIO:
        """On a full disk this raises before anything that was recorded makes room."""
        self.close()
        header = msgspec.structs.replace(self._header, started=now, file=token_hex(8))
        new = self._path.with_name(f"{self._path.name}.new")
        new.unlink(missing_ok=True)
        file = FileIO(os.open(new, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600), "w")
        first = msgspec.json.encode(header) + b"\n"
        try:
            _append(file, first, 0)
            self._turn()
            new.replace(self._path)
        except OSError:
            file.close()
            new.unlink(missing_ok=True)
            raise
        self._file, self._size, self._began = file, len(first), now
        return file

    def _turn(self) -> None:
        """Makes each file the next older one; deletes the oldest."""
        for number in range(self._most - 1, 0, -1):
            younger = self._older(number - 1)
            if younger.exists():
                younger.replace(self._older(number))
        self._path.unlink(missing_ok=True)  # if only one is kept

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path


def _append(file: FileIO, data: bytes, size: int) -> None:
    """Appends all of `data`, or raises OSError and leaves the file with its `size`."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        file.truncate(size)
        raise


def header_of(path: Path) -> Header | None:
    """None if the file is no recording, or cannot be read."""
    try:
        with path.open("rb") as file:
            return _HEADER.decode(file.readline(_HEADER_BYTES))
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None


_HEADER = msgspec.json.Decoder(Header)
_HEADER_BYTES = 4096


def _ends_with_a_line(path: Path) -> bool:
    """Whether the process that wrote the file was not killed within a line."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
