"""The blocks of GGUF's types as integers with scales and minimums, which together mean exactly the
numbers that ggml decodes: see `dequantize_blocks` of the `gguf` package, and ggml-quants.c."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from gguf.quants import IQ4_NL, MXFP4, Q4_K
from numpy.typing import NDArray

from pando_worker.models.grouped import Grouping, Integers

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Decoded = tuple[Bytes, Floats, Floats | None]
"""Integers [blocks, numbers of a block], scales and minimums [blocks, groups of a block]."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of GGUF tensors.

    Attributes:
        decode: of blocks [count, bytes of a block]
    """

    grouping: Grouping
    size: int  # bytes of a block
    decode: Callable[[Bytes], Decoded]

    def integers(self, rows: Bytes) -> Integers:
        """Of whole rows, [rows, bytes]."""
        count = len(rows)
        values, scales, minimums = self.decode(rows.reshape(-1, self.size))
        return Integers(
            torch.from_numpy(np.ascontiguousarray(values)).view(count, -1),
            torch.from_numpy(np.ascontiguousarray(scales)).view(count, -1),
            None
            if minimums is None
            else torch.from_numpy(np.ascontiguousarray(minimums)).view(count, -1),
        )


def _half(blocks: Bytes, at: int) -> Floats:
    """The 16-bit float at a byte of each block, [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _nibbles(packed: Bytes, run: int) -> Bytes:
    """Of bytes [blocks, n], low nibbles and then high ones of each `run` bytes: [blocks, 2 n]."""
    runs = packed.reshape(len(packed), -1, run)
    return np.stack((runs & 15, runs >> 4), axis=2).reshape(len(packed), -1)


def _parts(packed: Bytes, run: int, bits: int) -> Bytes:
    """Of bytes [blocks, n], for each `run` bytes their lowest bits, the next ones, and so on."""
    runs = packed.reshape(len(packed), -1, 1, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    return (runs >> shifts & np.uint8((1 << bits) - 1)).reshape(len(packed), -1)


def _q4_0(blocks: Bytes) -> Decoded:
    return _nibbles(blocks[:, 2:], 16), _half(blocks, 0), None


def _q4_1(blocks: Bytes) -> Decoded:
    return _nibbles(blocks[:, 4:], 16), _half(blocks, 0), _half(blocks, 2)


def _fifth_bits(packed: Bytes) -> Bytes:
    """[blocks, 4] to [blocks, 32], 16 where the bit is set"""
    return np.unpackbits(packed, axis=-1, bitorder="little") << np.uint8(4)


def _q5_0(blocks: Bytes) -> Decoded:
    values = _nibbles(blocks[:, 6:], 16) | _fifth_bits(blocks[:, 2:6])
    return values + np.uint8(128 - 16), _half(blocks, 0), None


def _q5_1(blocks: Bytes) -> Decoded:
    values = _nibbles(blocks[:, 8:], 16) | _fifth_bits(blocks[:, 4:8])
    return values, _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Decoded:
    return blocks[:, 2:] ^ np.uint8(128), _half(blocks, 0), None


def _q2_k(blocks: Bytes) -> Decoded:
    scales, values = blocks[:, :16], _parts(blocks[:, 16:80], 32, 2)
    return (
        values,
        _half(blocks, 80) * (scales & 15).astype(np.float32),
        -_half(blocks, 82) * (scales >> 4).astype(np.float32),
    )


def _q3_k(blocks: Bytes) -> Decoded:
    values = _parts(blocks[:, 32:96], 32, 2) | _parts(blocks[:, :32], 32, 1) << np.uint8(2)
    low, high = _parts(blocks[:, 96:104], 8, 4), _parts(blocks[:, 104:108], 4, 2)
    scales = (low | high << np.uint8(4)).astype(np.float32) - 32
    return values + np.uint8(8 - 4), _half(blocks, 108) * scales, None


def _scales_and_minimums(blocks: Bytes) -> tuple[Floats, Floats]:
    """Of Q4_K and Q5_K."""
    scales, minimums = Q4_K.get_scale_min(np.ascontiguousarray(blocks[:, 4:16]))
    return (
        _half(blocks, 0) * scales.astype(np.float32),
        -_half(blocks, 2) * minimums.astype(np.float32),
    )


def _q4_k(blocks: Bytes) -> Decoded:
    return _nibbles(blocks[:, 16:], 32), *_scales_and_minimums(blocks)


def _q5_k(blocks: Bytes) -> Decoded:
    fifth = _parts(blocks[:, 16:48], 32, 1) << np.uint8(4)
    return _nibbles(blocks[:, 48:], 32) | fifth, *_scales_and_minimums(blocks)


def _q6_k(blocks: Bytes) -> Decoded:
    values = _nibbles(blocks[:, :128], 64) | _parts(blocks[:, 128:192], 32, 2) << np.uint8(4)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    return values + np.uint8(128 - 32), _half(blocks, 208) * scales, None


def _named(table: tuple[int, ...], nibbles: Bytes) -> Bytes:
    """The bytes of signed integers that 4-bit numbers stand for."""
    return (np.array(table, np.int16) + 128).astype(np.uint8)[nibbles]


def _iq4_nl(blocks: Bytes) -> Decoded:
    return _named(IQ4_NL.kvalues, _nibbles(blocks[:, 2:], 16)), _half(blocks, 0), None


def _mxfp4(blocks: Bytes) -> Decoded:
    scales = MXFP4.e8m0_to_fp32_half(blocks[:, :1])
    return _named(MXFP4.kvalues, _nibbles(blocks[:, 1:], 16)), scales, None


_F16, _F32 = torch.float16, torch.float32

KINDS = {
    "Q4_0": Kind(Grouping(4, 32, _F16, False), 18, _q4_0),
    "Q4_1": Kind(Grouping(4, 32, _F16, True), 20, _q4_1),
    "Q5_0": Kind(Grouping(8, 32, _F16, False), 22, _q5_0),
    "Q5_1": Kind(Grouping(8, 32, _F16, True), 24, _q5_1),
    "Q8_0": Kind(Grouping(8, 32, _F16, False), 34, _q8_0),
    "Q2_K": Kind(Grouping(4, 16, _F32, True), 84, _q2_k),
    "Q3_K": Kind(Grouping(4, 16, _F32, False), 110, _q3_k),
    "Q4_K": Kind(Grouping(4, 32, _F32, True), 144, _q4_k),
    "Q5_K": Kind(Grouping(8, 32, _F32, True), 176, _q5_k),
    "Q6_K": Kind(Grouping(8, 16, _F32, False), 210, _q6_k),
    "IQ4_NL": Kind(Grouping(8, 32, _F16, False), 18, _iq4_nl),
    "MXFP4": Kind(Grouping(8, 32, _F32, False), 17, _mxfp4),
}
