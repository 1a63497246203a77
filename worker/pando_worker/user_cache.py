"""Files in the user's cache directory, and how processes share them.

All of them can be created again. A file appears complete or not at all.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_S = 0.02  # between two attempts to take a lock that another process holds


def cache_directory(*parts: str) -> Path:
    """One of Pando's folders under XDG_CACHE_HOME or ~/.cache. It need not exist yet.

    Raises:
        OSError: this user has no home directory.
    """
    try:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError(
            f"user {os.getuid()} has no home directory to keep files in; set HOME or"
            " XDG_CACHE_HOME to a folder that it may write to"
        ) from error
    return Path(root, "pando", *parts)


@contextmanager
def one_at_a_time(lock: Path, patience_s: float) -> Iterator[None]:
    """Waits while another process holds the same lock file; after `patience_s` seconds it enters
    anyway.

    Raises:
        OSError: the file cannot be created.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        until = time.monotonic() + patience_s
        while not _locked(file.fileno()) and time.monotonic() < until:
            time.sleep(POLL_S)
        yield  # closing the file unlocks it


def write_whole(path: Path, content: bytes) -> None:
    """Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=".draft-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def forget_oldest(folder: Path, pattern: str, kept: int) -> None:
    """Removes all files of this pattern except the `kept` newest. Raises OSError."""
    written = {path: path.stat().st_mtime_ns for path in folder.glob(pattern)}
    for path in sorted(written, key=written.__getitem__)[:-kept]:
        path.unlink(missing_ok=True)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
