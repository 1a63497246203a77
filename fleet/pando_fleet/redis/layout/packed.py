"""How a type's fields become bytes: in order, big-endian, each text followed by a NUL.

A `float` is a double, an `int` 8 bytes, a `bool` one, a `str` UTF-8. Packed answers are read by
their caller, and have their numbers before their texts. Rows stay in Redis and have a version,
because another release may have written them. The version is a row's last byte: scripts of the
previous release, which wrote none, ignore what follows the fields that they know, and their rows
end in a zero byte (the low byte of a whole number, or a text's end). In rows that always had a
version, it is the first byte.
"""

import struct
from operator import itemgetter
from typing import Generic, TypeVar, get_type_hints

Kind = TypeVar("Kind")

_CODES = {float: "d", int: "q", bool: "?"}  # codes of Python's struct


class Packed(Generic[Kind]):
    """`kind` must be a NamedTuple or a msgspec.Struct."""

    def __init__(
        self, name: str, kind: type[Kind], version: int = 0, *, is_versioned_in_front: bool = False
    ) -> None:
        """`version` is above 0 for rows; 0 for answers, which have none."""
        self.name = name
        self.kind = kind
        self.version = version
        self.is_versioned_in_front = is_versioned_in_front
        self.fields = hints = get_type_hints(kind)
        if not version:
            self.fields = dict(sorted(hints.items(), key=lambda field: field[1] is str))
        packed = list(self.fields)
        self._in_order_of_kind = itemgetter(*(packed.index(name) for name in hints))
        types = list(self.fields.values())
        self._texts = types.count(str)
        numbers = types[: len(types) - self._texts]
        self._has_numbers_first = str not in numbers
        self._numbers = struct.Struct(">" + "".join(_CODES.get(each, "s") for each in numbers))

    def unpack(self, packed: bytes) -> tuple[Kind, bytes]:
        """Returns the value at the beginning of `packed`, and the remaining bytes.

        Raises ValueError, and TypeError for a kind that has a number after a text.
        """
        if not self._has_numbers_first:
            raise TypeError(f"{self.name}: only Lua can read a number after a text")
        try:
            numbers = self._numbers.unpack_from(packed)
        except struct.error as error:
            raise ValueError(f"{self.name}: {error}") from error
        *texts, rest = packed[self._numbers.size :].split(b"\0", self._texts)
        values = (*numbers, *map(bytes.decode, texts))
        return self.kind(*self._in_order_of_kind(values)), rest

    def pack_row(self, value: Kind) -> bytes:
        """The row exactly as a script writes it. For kinds with their numbers first only."""
        values = [getattr(value, name) for name in self.fields]
        numbers = len(values) - self._texts
        texts = b"".join(text.encode() + b"\0" for text in values[numbers:])
        packed, version = self._numbers.pack(*values[:numbers]) + texts, bytes((self.version,))
        return version + packed if self.is_versioned_in_front else packed + version

    def unpack_row(self, row: bytes) -> Kind:
        """Raises ValueError if the row is truncated or has an unknown version."""
        if self.is_versioned_in_front:
            value, rest = self.unpack(row[1:])
            version, has_version = row[:1] + rest, True
        else:
            value, version = self.unpack(row)
            has_version = version != b""  # the previous release wrote none
        if has_version and version != bytes((self.version,)):
            raise ValueError(
                f"{self.name}: version {version!r}, and this release reads {self.version}"
            )
        return value
