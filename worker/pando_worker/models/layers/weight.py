"""The weights of linear layers and tables: floating-point numbers, small integers or 8-bit floats.

Layers are created with plain weights. Before memory is allocated, the loader, which knows the
checkpoint, may replace some of them (loading/quantize.py, loading/keep_narrow.py).
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from pando_worker.models.build import Build, Packed
from pando_worker.models.fp8 import BLOCK, Fp8Matrix, Fp8Product, Scaling
from pando_worker.models.grouped import Grouping, Groups, Integers, shapes
from pando_worker.models.ops import Ops


class Weight(Protocol):
    """A matrix [outputs, inputs]; a module."""

    outputs: int
    inputs: int

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """[num_tokens, inputs] to [num_tokens, outputs]."""
        ...

    def part(self, rows: slice) -> Tensor | Packed | Fp8Matrix:
        """The memory for these rows, which a tensor of the checkpoint fills."""
        ...


class Table(Weight, Protocol):
    """A weight whose rows can also be looked up; it is one tensor of the checkpoint."""

    def rows(self, ids: Tensor) -> Tensor:
        """[num_tokens, inputs]"""
        ...


class PlainWeight(nn.Module):
    """Numbers of the model's dtype, or narrower ones, which products widen."""

    def __init__(self, build: Build, outputs: int, inputs: int) -> None:
        super().__init__()
        self.outputs, self.inputs = outputs, inputs
        self.matrix = build.parameter(outputs, inputs)
        self.ops = build.ops
        self._dtype = build.dtype

    def keep_as(self, dtype: torch.dtype) -> None:
        """Have numbers of this type; before the weight has memory."""
        self.matrix = _empty((self.outputs, self.inputs), dtype)

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return self.ops.linear(x, self.matrix, bias)

    def rows(self, ids: Tensor) -> Tensor:
        return self.ops.embedding(ids, self.matrix).to(self._dtype)

    def part(self, rows: slice) -> Tensor:
        return self.matrix[rows]


class GroupedWeight(nn.Module):
    """Grouped integers. Products also quantize their input (`Ops.grouped_linear`)."""

    def __init__(self, ops: Ops, grouping: Grouping, outputs: int, inputs: int) -> None:
        super().__init__()
        self.outputs, self.inputs = outputs, inputs
        values, numbers = shapes(grouping, outputs, inputs)
        self.values = _empty(values, torch.uint8)
        self.scales = _empty(numbers, grouping.numbers)
        self.minimums = _empty(numbers, grouping.numbers) if grouping.minimums else None
        self.groups = Groups(grouping, outputs, inputs, self.values, self.scales, self.minimums)
        self._ops = ops

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return self._ops.grouped_linear(x, self.groups, bias)

    def rows(self, ids: Tensor) -> Tensor:
        return self._ops.grouped_embedding(ids, self.groups)

    def part(self, rows: slice) -> Packed:
        return _Part(self.groups, rows.start or 0)


class Fp8Weight(nn.Module):
    """A matrix of e4m3 as its checkpoint has it."""

    def __init__(self, product: Fp8Product, scaling: Scaling, outputs: int, inputs: int) -> None:
        super().__init__()
        self.outputs, self.inputs = outputs, inputs
        self.values = _empty((outputs, inputs), torch.float8_e4m3fn)
        of_blocks = outputs // BLOCK, inputs // BLOCK
        self.scales = _empty((outputs,) if scaling == "rows" else of_blocks, torch.float32)
        self._product = product

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        out = self._product(x, Fp8Matrix(self.values, self.scales))
        return out if bias is None else out.add_(bias)

    def part(self, rows: slice) -> Fp8Matrix:
        size = 1 if self.scales.dim() == 1 else BLOCK
        first, last = rows.start or 0, self.outputs if rows.stop is None else rows.stop
        return Fp8Matrix(self.values[rows], self.scales[first // size : last // size])


class StackedWeight(nn.Module):
    """Weights with the same input; their outputs are concatenated."""

    def __init__(self, parts: Sequence[PlainWeight | GroupedWeight]) -> None:
        super().__init__()
        self.outputs, self.inputs = sum(part.outputs for part in parts), parts[0].inputs
        self._parts = list(parts)
        self.parts = nn.ModuleList(parts)

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        products, first = [], 0
        for part in self._parts:
            own = None if bias is None else bias[first : first + part.outputs]
            products.append(part.product(x, own))
            first += part.outputs
        return torch.cat(products, dim=-1)

    def part(self, rows: slice) -> Tensor | Packed:
        first = 0
        for part in self._parts:
            if first <= rows.start < first + part.outputs:
                return part.part(slice(rows.start - first, rows.stop - first))
            first += part.outputs
        raise IndexError(rows)


class _Part:
    """The rows of a grouped matrix from `first` on."""

    def __init__(self, groups: Groups, first: int) -> None:
        self._groups = groups
        self._first = first

    @property
    def grouping(self) -> Grouping:
        return self._groups.grouping

    def put(self, first: int, rows: Integers) -> None:
        self._groups.put(self._first + first, rows)


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=dtype, device="meta"), requires_grad=False)
