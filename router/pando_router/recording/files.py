"""The files of a recording: one that grows, and older ones behind it (`FILE.1`, `FILE.2`, …)."""

import os
from io import BufferedWriter
from pathlib import Path


class Files:
    """`write` and `close` raise OSError; what was written before the last `write` returned stays.

    Only the owner may read them. A file from before is kept as an older one: it has another secret.
    """

    def __init__(self, path: Path, header: bytes, *, max_bytes: int, most: int) -> None:
        """Each file begins with `header`, and is ended behind `max_bytes`; `most` are kept."""
        self._path = path
        self._header = header
        self._max_bytes = max_bytes
        self._most = most
        self._file: BufferedWriter | None = None

    def write(self, lines: bytes) -> None:
        """Whole lines; they stay in one file."""
        file = self._file
        if file is None or file.tell() + len(lines) > self._max_bytes:
            file = self._begin()
        try:
            file.write(lines)
            file.flush()
        except OSError:
            # What is half written ends this file, not the next line.
            self._file = None
            file.raw.close()
            raise

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> BufferedWriter:
        self.close()
        self._turn()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        file = os.fdopen(descriptor, "wb")
        file.write(self._header)
        self._file = file
        return file

    def _turn(self) -> None:
        """Makes each file the next older one; the oldest goes."""
        for number in range(self._most - 1, 0, -1):
            younger = self._older(number - 1)
            if younger.exists():
                younger.replace(self._older(number))
        self._path.unlink(missing_ok=True)  # where only one is kept

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path
