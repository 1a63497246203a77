"""Reads the tensors of a safetensors file that nobody vouches for.

The library maps files, and a mapped file that becomes shorter ends the process; from memory it
copies every tensor while it holds the interpreter's lock, which delays steps. So this reads the
whole file and hands out views of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.files import decoded, open_regular

WEIGHTS = "adapter_model.safetensors"
_PICKLES = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth")
_MOST_HEADER_BYTES = 16 * 2**20
_PIECE_BYTES = 2**20
_TYPES: dict[str, type] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,  # its bits, since numpy has no such type
}

Rest = Callable[[], None]
"""Is called after each piece of work, which may then wait for others."""

Matrix = NDArray[Any]
"""[rows, columns] of float64, float32 or float16, or of uint16 with the bits of bfloat16."""


class _Entry(msgspec.Struct, frozen=True):
    """A tensor in a file's header."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]  # from the header's end


@dataclass(frozen=True, slots=True)
class TensorFile:
    """The contents of a file. Its methods raise AdapterError for what is broken."""

    path: Path
    entries: dict[str, _Entry]
    contents: memoryview  # of the whole file
    data: memoryview  # behind the header

    def matrix(self, key: str, *, known: bool = False) -> Matrix:
        """A tensor of finite floating-point numbers with two dimensions.

        Args:
            known: whether its numbers were found to be finite before
        """
        entry = self.entries[key]
        shape, (first, end) = entry.shape, entry.data_offsets
        if len(shape) != 2 or min(shape) < 1:
            raise AdapterError(f"{self.path}: {key} has the shape {shape}; it must be a matrix")
        if (dtype := _TYPES.get(entry.dtype)) is None:
            raise AdapterError(
                f"{self.path}: {key} has the type {entry.dtype}; it must be floating-point"
            )
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if not 0 <= first <= end <= len(self.data) or end - first != size:
            raise AdapterError(
                f"cannot read {self.path}: {key} {shape} has the bytes from {first} to {end} of"
                f" {len(self.data)}"
            )
        matrix: Matrix = np.frombuffer(self.data[first:end], dtype=dtype).reshape(shape)
        if not known and not _is_finite(matrix):
            raise AdapterError(f"{self.path}: {key} has numbers that are not finite")
        return matrix


def read_tensors(directory: Path, most_bytes: int, rest: Rest) -> TensorFile:
    """
    Raises:
        AdapterError: the weights are missing, in another format, too large, or unreadable.
    """
    path = directory / WEIGHTS
    data = _contents(directory, path, most_bytes, rest)
    header = int.from_bytes(data[:8], "little")
    if header > _MOST_HEADER_BYTES:
        raise AdapterError(f"cannot read {path}: its header claims {header} bytes")
    raw = decoded(path, data[8 : 8 + header], dict[str, msgspec.Raw])
    raw.pop("__metadata__", None)
    entries = {key: decoded(path, memoryview(entry), _Entry) for key, entry in raw.items()}
    claimed = sum(entry.data_offsets[1] - entry.data_offsets[0] for entry in entries.values())
    if claimed > len(data):
        raise AdapterError(f"cannot read {path}: its tensors overlap")
    return TensorFile(path, entries, data, data[8 + header :])


def open_weights(directory: Path) -> tuple[FileIO, int]:
    """The file of an adapter's weights and its size. Raises AdapterError: it cannot be read."""
    try:
        return open_regular(directory / WEIGHTS)
    except FileNotFoundError as error:
        pickles = [name for name in _PICKLES if (directory / name).exists()]
        if pickles:
            raise AdapterError(
                f"{directory} has its weights in {pickles[0]}, a pickle, which may run any code and"
                f" is not read; save them as {WEIGHTS}"
            ) from error
        raise AdapterError(f"{directory} has no {WEIGHTS}") from error


def _contents(directory: Path, path: Path, most_bytes: int, rest: Rest) -> memoryview:
    file, length = open_weights(directory)
    with file:
        if length > most_bytes:
            raise AdapterError(
                f"{path} has {length} bytes; host memory for adapters has {most_bytes}"
            )
        # Not bytes, which numpy and torch do not take as numbers that may be written to.
        contents = np.empty(length, dtype=np.uint8)
        size = 0
        try:
            while read := file.readinto(contents.data[size : size + _PIECE_BYTES]):
                size += read
                rest()
        except OSError as error:
            raise AdapterError(f"cannot read {path}: {error}") from error
    return contents.data[:size]


def _is_finite(matrix: Matrix) -> bool:
    if matrix.dtype == np.uint16:
        return bool(((matrix & 0x7F80) != 0x7F80).all())
    with np.errstate(over="ignore", invalid="ignore"):
        # A finite sum needs finite numbers, and takes a quarter of the time; it may be too large.
        return bool(np.isfinite(matrix.sum()) or np.isfinite(matrix).all())
