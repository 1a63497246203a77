"""Products of grouped integers, compared with the same arithmetic in torch."""

import pytest
import torch
from torch import Tensor

from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.ops import CpuOps
from pando_worker.models.grouped import RUN, Grouping, Groups, Integers, shapes

GROUPINGS = [
    Grouping(bits, group, numbers, minimums)
    for bits in (4, 8)
    for group in (16, 32)
    for numbers in (torch.float16, torch.float32)
    for minimums in (False, True)
]


@pytest.fixture
def ops(kernels: Kernels) -> CpuOps:
    torch.manual_seed(0)
    return CpuOps(kernels, threads=2, linear_rows={})


def matrix(grouping: Grouping, rows: int, columns: int) -> Groups:
    groups = grouping.groups(columns)
    numbers = torch.randn(2, rows, groups).to(grouping.numbers).float()
    integers = Integers(
        torch.randint(0, 1 << grouping.bits, (rows, columns), dtype=torch.uint8),
        numbers[0],
        numbers[1] if grouping.minimums else None,
    )
    values, of_groups = shapes(grouping, rows, columns)
    memory = [torch.zeros(of_groups, dtype=grouping.numbers) for _ in range(2)]
    made = Groups(
        grouping,
        rows,
        columns,
        torch.zeros(values, dtype=torch.uint8),
        memory[0],
        memory[1] if grouping.minimums else None,
    )
    made.put(0, integers)
    return made


def rounded(x: Tensor) -> Tensor:
    """Inputs as the products see them: bytes times one scale per 32."""
    rows, columns = x.shape
    padded = torch.nn.functional.pad(x, (0, -columns % RUN)).double().view(rows, -1, RUN)
    scales = padded.abs().amax(dim=-1, keepdim=True) / 127
    bytes_ = (padded / scales).nan_to_num(0.0).round()
    return (bytes_ * scales).view(rows, -1)[:, :columns]


@pytest.mark.parametrize("grouping", GROUPINGS, ids=str)
@pytest.mark.parametrize(("width", "inner"), [(1, 32), (16, 64), (75, 96), (40, 50), (33, 7)])
def test_products_equal_the_same_arithmetic_in_torch(
    ops: CpuOps, grouping: Grouping, width: int, inner: int
) -> None:
    weight, bias = matrix(grouping, width, inner), torch.randn(width)
    for rows in (1, 2, 5, 15, 130):
        x = torch.randn(rows, inner)
        x[0, :RUN] = 0.0  # a group without a largest number
        taken = rounded(x)
        # A number halfway between two bytes may go either way.
        assert torch.all((taken - x.double()).abs() <= taken.abs().amax() / 127)
        for b in (None, bias):
            expected = taken @ weight.decoded().double().T + (0 if b is None else b.double())
            found = ops.grouped_linear(x, weight, b).double()
            torch.testing.assert_close(found, expected, atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("grouping", GROUPINGS[::2], ids=str)
def test_a_rows_product_does_not_depend_on_the_rows_beside_it_nor_on_threads(
    ops: CpuOps, kernels: Kernels, grouping: Grouping
) -> None:
    """To the last bit."""
    x, weight = torch.randn(141, 160), matrix(grouping, 1030, 160)
    whole = ops.grouped_linear(x, weight)
    for rows in (1, 2, 3, 7, 8, 31, 128):
        assert torch.equal(ops.grouped_linear(x[:rows], weight), whole[:rows])
    assert torch.equal(CpuOps(kernels, 1, {}).grouped_linear(x, weight), whole)


@pytest.mark.parametrize("grouping", GROUPINGS, ids=str)
def test_embeddings_are_the_decoded_rows(ops: CpuOps, grouping: Grouping) -> None:
    weight, ids = matrix(grouping, 39, 70), torch.tensor([3, 38, 0, 16, 3])
    torch.testing.assert_close(ops.grouped_embedding(ids, weight), weight.decoded()[ids])
    outside = ops.grouped_embedding(torch.tensor([1, 39, -1, 2**40]), weight)
    assert not outside[0].isnan().any()
    assert outside[1:].isnan().all()


def test_rows_that_lie_apart_are_read_where_they_are(ops: CpuOps) -> None:
    weight, wide = matrix(GROUPINGS[-1], 20, 64), torch.randn(5, 100)
    assert torch.equal(
        ops.grouped_linear(wide[:, :64], weight),
        ops.grouped_linear(wide[:, :64].contiguous(), weight),
    )


def test_what_is_no_number_stays_in_its_row(ops: CpuOps) -> None:
    weight, x = matrix(GROUPINGS[-1], 20, 64), torch.randn(3, 64)
    clean = ops.grouped_linear(x, weight)
    x[1, 40] = torch.nan
    found = ops.grouped_linear(x, weight)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], clean[[0, 2]])
