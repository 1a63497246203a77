"""Reads the variables of a model in CTranslate2's binary form (its `python/ctranslate2/specs`)."""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VERSION = 6
_DTYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2"}

Variable = NDArray[np.float32 | np.float16 | np.int8 | np.int16 | np.int32]


@dataclass(slots=True)
class _Cursor:
    data: memoryview
    at: int = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return int(value)

    def take(self, count: int) -> memoryview:
        if count > len(self.data) - self.at:
            raise ValueError(f"the file ends at {len(self.data)}, within a value at {self.at}")
        self.at += count
        return self.data[self.at - count : self.at]

    def text(self) -> str:
        return bytes(self.take(self.number("H"))).rstrip(b"\0").decode()


def read_variables(data: bytes, spec: str) -> dict[str, Variable]:
    """All variables by their names, with those that are other names of others.

    Args:
        data: of model.bin
        spec: the name of the model's specification, such as "WhisperSpec"

    Raises:
        ValueError: it is another model, or in another version of the form, or cut.
    """
    cursor = _Cursor(memoryview(data))
    version, name, _ = cursor.number("I"), cursor.text(), cursor.number("I")
    if (version, name) != (VERSION, spec):
        raise ValueError(f"the file has version {version} of {name}, not {VERSION} of {spec}")
    found: dict[str, Variable] = {}
    for _ in range(cursor.number("I")):
        key = cursor.text()
        shape = [cursor.number("I") for _ in range(cursor.number("B"))]
        kind = cursor.number("B")
        if kind not in _DTYPES:
            raise ValueError(f"{key} has numbers of type {kind}")
        values = np.frombuffer(cursor.take(cursor.number("I")), dtype=_DTYPES[kind])
        found[key] = values.reshape(shape)
    for _ in range(cursor.number("I")):
        alias, key = cursor.text(), cursor.text()
        found[alias] = found[key]
    return found
