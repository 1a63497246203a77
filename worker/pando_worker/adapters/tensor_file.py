"""Reads the tensors of a safetensors file that nobody vouches for.

The library maps files, and a mapped file that becomes shorter ends the process; from memory it
copies every tensor while it holds the interpreter's lock, which delays steps. So this reads the
whole file and hands out views of it.
"""

import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pando_worker.adapters.errors import AdapterError

WEIGHTS = "adapter_model.safetensors"
_PICKLES = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth")
_MOST_HEADER_BYTES = 16 * 2**20
_TYPES: dict[str, type] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,  # its bits, since numpy has no such type
}

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
    data: memoryview  # behind the header

    def matrix(self, key: str) -> Matrix:
        """A tensor of finite floating-point numbers with two dimensions."""
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
        if not _is_finite(matrix):
            raise AdapterError(f"{self.path}: {key} has numbers that are not finite")
        return matrix


def read_tensors(directory: Path, most_bytes: int) -> TensorFile:
    """
    Raises:
        AdapterError: the weights are missing, in another format, too large, or unreadable.
    """
    path = directory / WEIGHTS
    data = _contents(directory, path, most_bytes)
    header = int.from_bytes(data[:8], "little")
    if header > _MOST_HEADER_BYTES:
        raise AdapterError(f"cannot read {path}: its header claims {header} bytes")
    try:
        raw = msgspec.json.decode(data[8 : 8 + header], type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        entries = {key: msgspec.json.decode(entry, type=_Entry) for key, entry in raw.items()}
    except msgspec.DecodeError as error:
        raise AdapterError(f"cannot read {path}: {error}") from error
    return TensorFile(path, entries, data[8 + header :])


def _contents(directory: Path, path: Path, most_bytes: int) -> memoryview:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        pickles = [name for name in _PICKLES if (directory / name).exists()]
        if pickles:
            raise AdapterError(
                f"{directory} has its weights in {pickles[0]}, a pickle, which may run any code and"
                f" is not read; save them as {WEIGHTS}"
            ) from error
        raise AdapterError(f"{directory} has no {WEIGHTS}") from error
    except OSError as error:
        raise AdapterError(f"cannot read {path}: {error}") from error
    with open(descriptor, "rb") as file:  # noqa: PTH123, it is a descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise AdapterError(f"{path} is no regular file")
        if status.st_size > most_bytes:
            raise AdapterError(
                f"{path} has {status.st_size} bytes; host memory for adapters has {most_bytes}"
            )
        try:
            # Not bytes, which numpy and torch do not take as numbers that may be written to.
            contents = np.empty(status.st_size, dtype=np.uint8)
            size = file.readinto(contents.data)
        except OSError as error:
            raise AdapterError(f"cannot read {path}: {error}") from error
    return contents.data[:size]


def _is_finite(matrix: Matrix) -> bool:
    if matrix.dtype == np.uint16:
        return bool(((matrix & 0x7F80) != 0x7F80).all())
    with np.errstate(over="ignore", invalid="ignore"):
        # A finite sum needs finite numbers, and takes a quarter of the time; it may be too large.
        return bool(np.isfinite(matrix.sum()) or np.isfinite(matrix).all())
