"""Matrices of encoders that are packed once."""

import platform

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from pando_worker.models.build import Build
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear, Rows
from pando_worker.models.layers.weight import PlainWeight
from pando_worker.models.parallel import ParallelGroup
from pando_worker.runner.cpu.packing import PackedWeight, pack

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="matrices are packed on x86 alone"
)

CPU = torch.device("cpu")

Layer = ColumnParallelLinear | RowParallelLinear


def layers(inputs: int, outputs: int) -> dict[str, Layer]:
    """Filled at random; `narrow` has weights of 16 bits."""
    torch.manual_seed(inputs)
    build = Build(torch.float32, CPU, ParallelGroup(), 64, has_head=False)
    wide, tall = Rows(outputs, range(outputs)), Rows(inputs, range(inputs))
    made: dict[str, Layer] = {
        "column": ColumnParallelLinear(build, inputs, {"a": wide, "b": wide}, bias=True),
        "row": RowParallelLinear(build, "c", tall, outputs, bias=False),
        "narrow": RowParallelLinear(build, "d", tall, outputs, bias=False),
    }
    plain(made["narrow"]).keep_as(torch.float16)
    for layer in made.values():
        layer.to_empty(device=CPU)
        for parameter in layer.parameters():
            parameter.data.normal_()
    return made


def plain(layer: Layer) -> PlainWeight:
    assert isinstance(layer.weight, PlainWeight)
    return layer.weight


@torch.inference_mode()
@pytest.mark.parametrize("inputs, outputs", [(64, 48), (33, 7), (1, 1)])
def test_products_of_any_number_of_rows_equal_torch(inputs: int, outputs: int) -> None:
    made = layers(inputs, outputs)
    matrices = {name: plain(layer).matrix.data.clone() for name, layer in made.items()}
    pack(nn.ModuleDict(made), rows=30)
    packed = [name for name, layer in made.items() if isinstance(layer.weight, PackedWeight)]
    assert packed == ["column", "row"]
    for rows in (1, 2, 17, 30, 200):
        x = torch.randn(rows, inputs)
        for given in (x, x.T.contiguous().T):
            for name, layer in made.items():
                expected = linear(x, matrices[name].float(), layer.bias)
                torch.testing.assert_close(layer(given), expected, rtol=1e-5, atol=1e-5)
