"""GGUF tensors as the file has them: each type's integers, scales and minimums, without rounding.

Types of 4 and fewer bits become 4-bit integers, all others bytes. IQ4_NL and MXFP4 name 16 unevenly
spaced integers, which are bytes.
"""

from dataclasses import dataclass

from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.grouped import Grouping, Integers
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.gguf.tensors import GgufTensor
from pando_worker.models.loading.schemes.blocks import KINDS


@dataclass(frozen=True, slots=True)
class AsStored:
    name: str = "as in the GGUF file"
    exact: bool = True

    def grouping(self, tensor: Stored, part: tuple[slice, ...], table: bool) -> Grouping | None:
        if not isinstance(tensor, GgufTensor) or len(part) != 2:
            return None
        kind = KINDS.get(tensor.place.type.name)
        if kind is None:
            return None
        group, columns = kind.grouping.group, part[1]
        if columns.start % group or (columns.stop % group and columns.stop != tensor.shape[1]):
            raise UnsupportedModel(
                f"{tensor.path} has {tensor.place.type.name} weights in groups of {group}, through"
                f" which a rank's columns {columns.start} to {columns.stop} cut; take fewer"
                " ranks, or quantization none"
            )
        return kind.grouping

    def integers(self, tensor: Stored, part: tuple[slice, ...], grouping: Grouping) -> Integers:
        assert isinstance(tensor, GgufTensor)
        kind = KINDS[tensor.place.type.name]
        rows = kind.integers(tensor.blocks(part[0]))
        return rows.columns(part[1], grouping.group)
