"""The private folder for a worker's sockets.

The next worker of the same user removes what a killed worker left: a lock file that nobody holds
shows that the folder's owner is dead.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pando_worker.server.front.startup import CannotStartError

PREFIX = "pando-worker-"
LOCK = "lock"
MAX_PATH_BYTES = 107  # of a socket, on Linux
_LONGEST_NAME = "commands"  # of the sockets in the folder, including those to tensor-parallel ranks


@contextmanager
def socket_folder() -> Iterator[Path]:
    """A new folder (mode 0700) that exists while the block runs.

    Raises CannotStartError if it cannot be created, or if paths in it would be too long for
    sockets.
    """
    try:
        root = Path(tempfile.gettempdir())
        _check_length(root)
        _remove_leftovers(root)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        lock = _lock(folder)
    except OSError as error:
        raise CannotStartError(
            f"cannot create a folder for this worker's sockets: {error.strerror}; set TMPDIR to a"
            f" folder that user {os.geteuid()} may write to"
        ) from error
    with lock:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _check_length(root: Path) -> None:
    example = root / f"{PREFIX}12345678" / _LONGEST_NAME  # as mkdtemp makes names
    if (length := len(os.fsencode(example))) > MAX_PATH_BYTES:
        raise CannotStartError(
            f"the folder for temporary files is {str(root)!r}: socket paths in it would have"
            f" {length} bytes, and the system allows {MAX_PATH_BYTES}; set TMPDIR to a shorter path"
        )


def _lock(folder: Path) -> BinaryIO:
    """A lock that is held until the file is closed or the process ends. The file gets its name only
    after it is locked, so no other worker takes this one for dead."""
    new = folder / f"{LOCK}.new"
    file = new.open("wb")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(folder / LOCK)
    return file


def _remove_leftovers(root: Path) -> None:
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):  # no lock file, a live owner, or another user's folder
            if folder.lstat().st_uid != os.geteuid():
                continue
            with (folder / LOCK).open("rb+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
