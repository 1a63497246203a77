"""The files of a recording: one that grows, and older ones (`FILE.1`, `FILE.2`, …)."""

import os
from io import BufferedWriter
from pathlib import Path


class Files:
    """`write` and `close` raise OSError; everything before the last successful `write` is kept.

    Only the owner may read the files. An existing file becomes an older one, because its secret
    differs.
    """

    def __init__(self, path: Path, header: bytes, *, max_bytes: int, most: int) -> None:
        """Each file begins with `header` and ends after `max_bytes`; `most` files are kept."""
        self._path = path
        self._header = header
        self._max_bytes = max_bytes
        self._most = most
        self._file: BufferedWriter | None = None

    def write(self, lines: bytes) -> None:
        """Writes whole lines, which stay in one file."""
        file = self._file
        if file is None or file.tell() + len(lines) > self._max_bytes:
            file = self._begin()
        try:
            file.write(lines)
            file.flush()
        except OSError:
            # A partly written line ends this file, so that the next line starts clean.
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
        """Makes each file the next older one; deletes the oldest."""
        for number in range(self._most - 1, 0, -1):
            younger = self._older(number - 1)
            if younger.exists():
                younger.replace(self._older(number))
        self._path.unlink(missing_ok=True)  # if only one is kept

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path
