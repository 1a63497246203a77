"""The head of a GGUF file: its metadata, and where each tensor is.

Every count, length and offset is held against the size of the file before anything is read or
allocated by it, so that a truncated or hostile file is an error and nothing else. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.loading.gguf.types import TYPES, TensorType, type_name

_VERSIONS = (2, 3)
_MAX_HEAD = 1 << 28  # bytes of metadata; the largest vocabularies take about 2^24
_MAX_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
# By the id of a value's type, as `struct` names it.
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor lies in its file.

    Attributes:
        shape: with the dimension that changes fastest at the end, as torch has it
        start: byte in the file
    """

    shape: tuple[int, ...]
    type: TensorType
    start: int

    @property
    def row_bytes(self) -> int:
        return self.shape[-1] // self.type.block * self.type.size

    @property
    def end(self) -> int:
        return self.start + prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True, slots=True)
class Header:
    """
    Attributes:
        metadata: numbers, strings, and lists of them, by key
        tensors: by name
    """

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorPlace]


def read_header(path: Path) -> Header:
    """
    Raises:
        BrokenCheckpoint: it cannot be read, or is malformed.
        UnsupportedModel: a version, a byte order or a tensor's type that is not read.
    """
    with _mapped(path) as data:
        reader = _HeaderReader(path, data)
        try:
            return _read(reader)
        except UnicodeDecodeError as error:
            raise reader.broken(f"text that is not UTF-8 ({error})") from error


def _read(reader: "_HeaderReader") -> Header:
    if reader.take(4) != b"GGUF":
        raise reader.broken("no GGUF at its start")
    version = reader.number("I")
    if version not in _VERSIONS:
        raise UnsupportedModel(
            f"{reader.path} is GGUF version {version}; supported: 2 and 3, little-endian"
        )
    tensors, keys = reader.number("Q"), reader.number("Q")
    metadata: dict[str, Any] = {}
    for _ in reader.counted(keys, at_least=13):
        key = reader.string()
        if key in metadata:
            raise reader.broken(f"{key!r} twice")
        metadata[key] = reader.value(reader.number("I"))
    table = [reader.tensor() for _ in reader.counted(tensors, at_least=32)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
        raise reader.broken(f"an alignment of {alignment}")
    first = -(-reader.at // alignment) * alignment
    places: dict[str, TensorPlace] = {}
    for name, shape, kind, offset in table:
        if name in places:
            raise reader.broken(f"the tensor {name!r} twice")
        place = TensorPlace(shape, kind, first + offset)
        if offset % alignment or place.end > len(reader.data):
            raise reader.broken(
                f"the tensor {name!r} at bytes {place.start} to {place.end} of {len(reader.data)}"
            )
        places[name] = place
    return Header(reader.path, metadata, places)


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise BrokenCheckpoint(f"cannot read {path}: {error}") from error


class _HeaderReader:
    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.at = 0
        self._end = min(len(data), _MAX_HEAD)

    def broken(self, what: str) -> BrokenCheckpoint:
        return BrokenCheckpoint(f"{self.path} is no sound GGUF file: it has {what}")

    def take(self, size: int) -> bytes:
        start = self._skip(size)
        return self.data[start : self.at]

    def number(self, kind: str) -> Any:
        size = struct.calcsize(f"<{kind}")
        return struct.unpack_from(f"<{kind}", self.data, self._skip(size))[0]

    def string(self) -> str:
        return self.take(self.number("Q")).decode()

    def counted(self, count: int, at_least: int) -> range:
        """For `count` things that take so many bytes each, at least."""
        if count * at_least > self._end - self.at:
            raise self.broken(f"a count of {count} in {self._end - self.at} bytes")
        return range(count)

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array(self.number("I"), self.number("Q"))
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        raise self.broken(f"a value of the unknown type {kind}")

    def tensor(self) -> tuple[str, tuple[int, ...], TensorType, int]:
        """Name, shape, type, and the offset from where the tensors begin."""
        name = self.string()
        dimensions = self.number("I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise self.broken(f"the tensor {name!r} of {dimensions} dimensions")
        shape = tuple(self.number("Q") for _ in range(dimensions))[::-1]
        number, offset = self.number("I"), self.number("Q")
        if number not in TYPES:
            names = ", ".join(kind.name for kind in TYPES.values())
            raise UnsupportedModel(
                f"{self.path}: the tensor {name!r} is of GGUF type {type_name(number)}; supported:"
                f" {names}"
            )
        kind = TYPES[number]
        if 0 in shape or shape[-1] % kind.block:
            raise self.broken(f"the tensor {name!r} of {list(shape)} values in {kind.name}")
        return name, shape, kind, offset

    def _array(self, kind: int, count: int) -> list[Any]:
        if kind == _STRING:
            return [self.string() for _ in self.counted(count, at_least=8)]
        if kind not in _NUMBERS:
            raise self.broken(f"a list of the unknown type {kind}")
        size = struct.calcsize(f"<{_NUMBERS[kind]}")
        self.counted(count, at_least=size)
        start = self._skip(size * count)
        return list(struct.unpack_from(f"<{count}{_NUMBERS[kind]}", self.data, start))

    def _skip(self, size: int) -> int:
        start = self.at
        if size > self._end - start:
            raise self.broken(f"{size} bytes at byte {start} of {self._end}")
        self.at = start + size
        return start
