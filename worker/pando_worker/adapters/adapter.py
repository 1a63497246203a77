"""`Adapter`: the matrices of an adapter that fits a model."""

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pando_worker.adapters.tensor_file import Matrix, Rest

_PIECE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Pair:
    """The two matrices of a module: it adds scale * B(A(x))."""

    a: Matrix  # [rank, inputs]
    b: Matrix  # [outputs, rank]
    scale: float

    @property
    def rank(self) -> int:
        return int(self.a.shape[0])


@dataclass(frozen=True, slots=True)
class Adapter:
    """
    Attributes:
        pairs: by the names that `Section` has
        tables: whole tables of the vocabulary, [tokens, hidden size], by the same
        contents: of the file with the weights, which nearly all matrices are views of
    """

    identity: bytes
    pairs: Mapping[str, Pair]
    tables: Mapping[str, Matrix]
    contents: memoryview

    @property
    def rank(self) -> int:
        """The largest; 0 if it has whole tables alone."""
        return max((pair.rank for pair in self.pairs.values()), default=0)


def identity(pairs: Mapping[str, Pair], tables: Mapping[str, Matrix], rest: Rest) -> bytes:
    """16 bytes that differ between adapters that compute something else. SHA-256 takes half the
    time of others, as processors have instructions for it."""
    digest = hashlib.sha256()
    for part in _parts(pairs, tables):
        whole = memoryview(part).cast("B")
        for first in range(0, len(whole), _PIECE_BYTES):
            digest.update(whole[first : first + _PIECE_BYTES])
            rest()
    return digest.digest()[:16]


def _parts(pairs: Mapping[str, Pair], tables: Mapping[str, Matrix]) -> Iterator[bytes | memoryview]:
    for name, pair in sorted(pairs.items()):
        shape = f"{name} {pair.a.dtype} {pair.a.shape} {pair.b.dtype} {pair.b.shape}"
        yield shape.encode() + b"\0" + struct.pack("<d", pair.scale)
        yield np.ascontiguousarray(pair.a).data
        yield np.ascontiguousarray(pair.b).data
    for name, table in sorted(tables.items()):
        yield f"{name} {table.dtype} {table.shape}".encode() + b"\0"
        yield np.ascontiguousarray(table).data
