"""The private folder of a worker's sockets. What a killed worker left of its own goes at the next
start of any worker of the same user, which knows by the lock in it that its owner is dead.
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
_LONGEST_NAME = "commands"  # of the sockets in it, those to tensor-parallel ranks included


@contextmanager
def socket_folder() -> Iterator[Path]:
    """One of its own (mode 0700), for as long as the block runs.

    Raises CannotStartError where none can be made, or paths in it would be too long for sockets.
    """
    try:
        root = Path(tempfile.gettempdir())
        _check_length(root)
        _remove_leftovers(root)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        lock = _lock(folder)
    except OSError as error:
        raise CannotStartError(
            f"no folder for this worker's sockets can be made: {error.strerror}; set TMPDIR to a"
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
            f"the folder for temporary files is {str(root)!r}: paths of sockets in it would have"
            f" {length} bytes, and the system allows {MAX_PATH_BYTES}; set TMPDIR to a shorter one"
        )


def _lock(folder: Path) -> BinaryIO:
    """Held until it is closed, or its process ends. It has its name only once it is held, so
    nobody finds it free who looks for dead owners."""
    new = folder / f"{LOCK}.new"
    file = new.open("wb")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(folder / LOCK)
    return file


def _remove_leftovers(root: Path) -> None:
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it has no lock, its owner lives, or it is another user's
            if folder.lstat().st_uid != os.geteuid():
                continue
            with (folder / LOCK).open("rb+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
