"""A GGUF file's metadata, read by key and type."""

import struct
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.loading.gguf.header import Header, TensorPlace

T = TypeVar("T", int, float, str)


class Metadata:
    """Keys are relative to the architecture, if they do not begin with `general.`,
    `tokenizer.` or `split.`."""

    def __init__(self, header: Header, tensors: dict[str, TensorPlace] | None = None) -> None:
        """
        Args:
            header: of the file, or of the first part of a split one
            tensors: of all parts

        Raises:
            BrokenCheckpoint: the file names no architecture.
        """
        self.path: Path = header.path
        self.tensors = header.tensors if tensors is None else tensors
        self._values = header.metadata
        self._prefix = ""
        self.architecture = self.need("general.architecture", str)
        self._prefix = f"{self.architecture}."

    def need(self, key: str, kind: type[T]) -> T:
        """Raises BrokenCheckpoint where it is missing or of another type."""
        value = self.get(key, kind)
        if value is None:
            raise BrokenCheckpoint(f"{self.path} has no {self._name(key)} in its metadata")
        return value

    def count(self, key: str) -> int:
        """A number from 1 on. Raises as `need`."""
        value = self.need(key, int)
        if value < 1:
            raise BrokenCheckpoint(f"{self.path} has {value} as {self._name(key)}")
        return value

    def get(self, key: str, kind: type[T]) -> T | None:
        """Raises as `need`, but for a missing key. A list with one value for each layer counts as
        that value if all are equal, and is not supported otherwise."""
        value = self._values.get(self._name(key))
        if isinstance(value, list) and value:
            if any(one != value[0] for one in value):
                raise UnsupportedModel(
                    f"{self.path} has a {self._name(key)} for each layer, not all equal, which is"
                    " not supported"
                )
            value = value[0]
        if value is None:
            return None
        if isinstance(value, float) and not isfinite(value):
            raise self._wrong(key, value)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return kind(value)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._wrong(key, value)
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._values.get(self._name(key), default)
        if not isinstance(value, bool):
            raise self._wrong(key, value)
        return value

    def strings(self, key: str) -> list[str]:
        """Empty where it is missing."""
        return self._list(key, str)

    def numbers(self, key: str) -> list[float]:
        """Empty where it is missing."""
        return self._list(key, (int, float))

    def floats(self, tensor: str) -> list[float] | None:
        """The values of a small float32 tensor; None where there is no such tensor."""
        place = self.tensors.get(tensor)
        if place is None:
            return None
        if place.type.name != "F32" or len(place.shape) != 1:
            raise BrokenCheckpoint(f"{self.path}: {tensor} is no vector of F32")
        return read_floats(self.path, place)

    def _list(self, key: str, kind: Any) -> list[Any]:
        values = self._values.get(self._name(key), [])
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            raise self._wrong(key, values)
        return values

    def _name(self, key: str) -> str:
        return key if key.startswith(("general.", "tokenizer.", "split.")) else self._prefix + key

    def _wrong(self, key: str, value: Any) -> BrokenCheckpoint:
        return BrokenCheckpoint(
            f"{self.path} has {str(value)[:80]!r} as {self._name(key)}, which is of the wrong kind"
        )


def read_floats(path: Path, place: TensorPlace) -> list[float]:
    with path.open("rb") as file:
        file.seek(place.start)
        data = file.read(place.end - place.start)
    return list(struct.unpack(f"<{place.shape[0]}f", data))
