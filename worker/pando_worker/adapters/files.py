"""Opens and decodes files that nobody vouches for."""

import os
import stat
from io import FileIO
from pathlib import Path
from typing import TypeVar

import msgspec

from pando_fleet.misread import misread
from pando_worker.adapters.errors import AdapterError

T = TypeVar("T")


def open_regular(path: Path) -> tuple[FileIO, int]:
    """A file and its size. A pipe would let the reader wait forever.

    Raises:
        FileNotFoundError
        AdapterError: it is no regular file, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise AdapterError(f"cannot read {path}: {error}") from error
    file = FileIO(descriptor, "rb")
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        file.close()
        raise AdapterError(f"{path} is no regular file")
    return file, status.st_size


def decoded(path: Path, data: bytes | memoryview, kind: type[T]) -> T:
    """JSON of a file.

    Raises:
        AdapterError: it is not of this kind, or nested without end.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise AdapterError(f"cannot read {path}: {misread(error).about('it')}") from error
    except RecursionError as error:
        raise AdapterError(f"cannot read {path}: {error}") from error
