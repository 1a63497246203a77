"""Linear layers, split over the ranks by outputs (column) or by inputs (row)."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torch import Tensor, nn

from pando_worker.models.build import Build, Fill
from pando_worker.models.layers.weight import PlainWeight, Weight
from pando_worker.models.lora.linear import LoraSite
from pando_worker.models.ops import Ops


class Rows(NamedTuple):
    """The rows of one of the projections that are computed together."""

    total: int
    taken: range  # of this rank


class _Linear(nn.Module):
    """
    Attributes:
        lora: where the layer's adapters are; None if the model has none
    """

    def __init__(self, ops: Ops, weight: Weight, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias
        self.lora: LoraSite | None = None
        self._ops = ops

    def _product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """[num_tokens, inputs] to [num_tokens, outputs], with what adapters add."""
        y = self.weight.product(x, bias)
        if self.lora is not None and (step := self.lora.memory.step) is not None:
            self._ops.add_lora(y, x, self.lora, step)
        return y


class ColumnParallelLinear(_Linear):
    """Projections of the same input as one matrix product; each rank computes a share of each.

    Args:
        sections: each projection's name and rows, in the order of the output. In the checkpoint
            they are separate tensors beside this layer, unless `fused` is given
        fused: name of one tensor of the checkpoint that has all projections, in this order
    """

    def __init__(
        self,
        build: Build,
        in_features: int,
        sections: Mapping[str, Rows],
        *,
        bias: bool,
        fused: str | None = None,
    ) -> None:
        width = sum(len(rows.taken) for rows in sections.values())
        weight = PlainWeight(build, width, in_features)
        super().__init__(build.ops, weight, build.parameter(width) if bias else None)
        self._sections = sections
        self._fused = fused

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] to [..., this rank's rows of all projections]"""
        return self._product(x, self.bias)

    def fills(self) -> Iterator[Fill]:
        start = offset = 0
        whole = sum(rows.total for rows in self._sections.values())
        for section, (total, taken) in self._sections.items():
            name = self._fused or section
            shape = (whole if self._fused else total, self.weight.inputs)
            first = offset + taken.start
            part = (slice(first, first + len(taken)), slice(0, shape[1]))
            memory = slice(start, start + len(taken))
            yield Fill(f"{name}.weight", shape, part, self.weight.part(memory))
            if self.bias is not None:
                yield Fill(f"{name}.bias", shape[:1], part[:1], self.bias[memory])
            start += len(taken)
            offset += total if self._fused else 0


class RowParallelLinear(_Linear):
    """Each rank has a share of the input; the output is the sum over the ranks, or with
    `Build.sums_in_norms` this rank's part of it. So an adapter's A is split as well, and the sum
    is that of both.

    Args:
        name: in the checkpoint
        columns: all inputs, and those of this rank
    """

    def __init__(
        self, build: Build, name: str, columns: Rows, out_features: int, *, bias: bool
    ) -> None:
        weight = PlainWeight(build, out_features, len(columns.taken))
        super().__init__(build.ops, weight, build.parameter(out_features) if bias else None)
        self._name = name
        self._columns = columns
        self._group = build.group
        self._sums = not build.sums_in_norms

    def forward(self, x: Tensor) -> Tensor:
        """[..., this rank's inputs] to [..., out_features]"""
        bias = self.bias if self._group.rank == 0 else None  # added once, by rank 0
        part = self._product(x, bias)
        return self._group.all_reduce(part) if self._sums else part

    def fills(self) -> Iterator[Fill]:
        total, taken = self._columns
        rows = slice(0, self.weight.outputs)
        part = (rows, slice(taken.start, taken.stop))
        yield Fill(f"{self._name}.weight", (rows.stop, total), part, self.weight.part(rows))
        if self.bias is not None:
            yield Fill(f"{self._name}.bias", (rows.stop,), (rows,), self.bias)
