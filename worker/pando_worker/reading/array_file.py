"""`ArrayFile`: arrays from the process that makes them to the HTTP process, uncopied.

A video's arrays have hundreds of MiB. Through the pipe of a process pool they would be copied more
than once while Python's lock is held, and every stream would wait. So they are written to a file
in memory, which the HTTP process maps and never touches.
"""

import ctypes
import mmap
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32] | NDArray[np.int64] | NDArray[np.bool_]


class WithArrays(Protocol):
    """A dataclass with arrays by their names."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def arrays(self) -> dict[str, Array]: ...


ReadT = TypeVar("ReadT", bound=WithArrays)

_ALIGNMENT = 64  # bytes


@dataclass(frozen=True, slots=True)
class _ArrayPlace:
    """An array in a file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class StoredRead(Generic[ReadT]):
    """
    Attributes:
        read: without its arrays
        places: of these, by their names
    """

    read: ReadT
    places: dict[str, _ArrayPlace]


class ArrayFile:
    """A file for one read. What was `loaded` stays when it is closed.

    Attributes:
        path: by which processes of this user can open it, as long as it is not closed. Later the
            path may be that of another file.
        close: close it; a second time changes nothing
    """

    def __init__(self) -> None:
        if sys.platform == "linux":
            self._file = os.memfd_create("pando-arrays")
            self.path = Path(f"/proc/{os.getpid()}/fd/{self._file}")
            self.close = weakref.finalize(self, os.close, self._file)
        else:
            self._file, name = tempfile.mkstemp(prefix="pando-arrays-")
            self.path = Path(name)
            self.close = weakref.finalize(self, _close, self._file, self.path)

    def loaded(self, stored: Sequence[StoredRead[ReadT]]) -> list[ReadT]:
        """What was stored, with its arrays, which are read-only."""
        mapped = _mapped(self._file)
        return [
            replace(one.read, arrays={name: _array(mapped, at) for name, at in one.places.items()})
            for one in stored
        ]


def _mapped(file: int) -> memoryview:
    """A whole file. Whoever drops the last reference to it does not wait: to unmap half a GiB takes
    a tenth of a second, in which Python's `mmap` would hold its lock."""
    _start_unmapping()
    size = os.fstat(file).st_size
    address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), f"cannot map {size} bytes of arrays")
    memory = (ctypes.c_char * size).from_address(address)
    weakref.finalize(memory, _UNMAPPING.put, (address, size)).atexit = False
    return memoryview(memory).toreadonly().cast("B")


@cache
def _start_unmapping() -> None:
    threading.Thread(target=_unmap, name="array-unmap", daemon=True).start()


def _unmap() -> None:
    while True:
        _LIBC.munmap(*_UNMAPPING.get())  # ctypes releases Python's lock


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value
_UNMAPPING: SimpleQueue[tuple[int, int]] = SimpleQueue()  # may be put to within a finalizer


def _close(file: int, path: Path) -> None:
    os.close(file)
    path.unlink()


def store(path: Path, read: Sequence[ReadT]) -> list[StoredRead[ReadT]]:
    """Write arrays to an `ArrayFile`."""
    stored, end = [], 0
    with path.open("r+b", buffering=0) as file:
        for one in read:
            places = {}
            for name, array in one.arrays.items():
                places[name] = _ArrayPlace(array.dtype.str, array.shape, end)
                _write(file.fileno(), array, end)
                end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
            stored.append(StoredRead(replace(one, arrays={}), places))
        file.truncate(max(1, end))  # an empty file cannot be mapped
    return stored


def _write(file: int, array: Array, start: int) -> None:
    left = array.data.cast("B")
    while left:  # one call writes 2 GiB at most, and less if a signal comes
        done = os.pwrite(file, left, start)
        start, left = start + done, left[done:]


def _array(mapped: memoryview, at: _ArrayPlace) -> Array:
    count = int(np.prod(at.shape, dtype=np.int64))
    found: Array = np.frombuffer(mapped, at.dtype, count, at.offset).reshape(at.shape)
    return found
