"""Numbers out of GGUF's blocks.

The `gguf` package decodes every type with numpy. The commonest types are decoded here with torch:
measured on Q4_1, that takes a quarter of the time, and a start waits for it. The formats:
https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pando_worker.models.loading.gguf.types import TensorType

CHUNK = 2**18  # values decoded at once, which with their intermediate results fit into a cache


def decode(data: Tensor, kind: TensorType, out: Tensor) -> None:
    """
    Args:
        data: uint8, [rows, bytes of a row]
        out: float32, [rows, values of a row], contiguous
    """
    rows = max(1, CHUNK // out.shape[1])
    way = _WAYS.get(kind.name)
    for start in range(0, len(data), rows):
        chunk, target = data[start : start + rows], out[start : start + rows]
        if way is None:
            target.copy_(_by_gguf(chunk, kind))
        else:
            way(chunk.reshape(-1, kind.size), target.view(-1, kind.block))


def _by_gguf(data: Tensor, kind: TensorType) -> Tensor:
    # Imported here: it takes a fifth of a second, and many files do without.
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    return torch.from_numpy(dequantize(data.numpy(), GGMLQuantizationType[kind.name]))


def _plain(dtype: torch.dtype) -> Callable[[Tensor, Tensor], None]:
    def decode(blocks: Tensor, out: Tensor) -> None:
        out.copy_(blocks.contiguous().view(dtype))

    return decode


def _q4_0(blocks: Tensor, out: Tensor) -> None:
    scale, low_and_high = _floats(blocks[:, :2]), blocks[:, 2:]
    _nibbles(low_and_high, out)
    out.sub_(8.0).mul_(scale)


def _q4_1(blocks: Tensor, out: Tensor) -> None:
    scale, minimum = _floats(blocks[:, :4]).chunk(2, dim=1)
    _nibbles(blocks[:, 4:], out)
    out.mul_(scale).add_(minimum)


def _q5_0(blocks: Tensor, out: Tensor) -> None:
    scale = _floats(blocks[:, :2])
    _nibbles(blocks[:, 6:], out)
    out.add_(_fifth_bits(blocks[:, 2:6])).sub_(16.0).mul_(scale)


def _q5_1(blocks: Tensor, out: Tensor) -> None:
    scale, minimum = _floats(blocks[:, :4]).chunk(2, dim=1)
    _nibbles(blocks[:, 8:], out)
    out.add_(_fifth_bits(blocks[:, 4:8])).mul_(scale).add_(minimum)


def _q8_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8)).mul_(_floats(blocks[:, :2]))


def _floats(halves: Tensor) -> Tensor:
    return halves.contiguous().view(torch.float16).float()


def _nibbles(data: Tensor, out: Tensor) -> None:
    """Bytes [blocks, 16]: the lower halves are a block's first values, the upper ones its last."""
    out[:, :16].copy_(data & 15)
    out[:, 16:].copy_(data >> 4)


def _fifth_bits(data: Tensor) -> Tensor:
    """Bytes [blocks, 4], a bit a value: 16 where it is set, [blocks, 32]."""
    bits = data.contiguous().view(torch.int32) >> torch.arange(32, dtype=torch.int32)
    return (bits & 1) << 4


_WAYS = {
    "F32": _plain(torch.float32),
    "F16": _plain(torch.float16),
    "BF16": _plain(torch.bfloat16),
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
}
