"""The types of GGUF tensors that are read. Ids, names and sizes are those of ggml's `ggml_type`."""

from typing import NamedTuple


class TensorType(NamedTuple):
    name: str
    block: int  # values in a block
    size: int  # bytes of a block


TYPES = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    20: TensorType("IQ4_NL", 32, 18),
    30: TensorType("BF16", 1, 2),
    39: TensorType("MXFP4", 32, 17),
}


def type_name(number: int) -> str:
    """Of a type that need not be among TYPES."""
    from gguf.constants import GGMLQuantizationType  # only for a refusal: it imports numpy

    known = {kind.value: kind.name for kind in GGMLQuantizationType}
    return known.get(number, str(number))
