"""Page tables on the device: changes put into them, and pages listed from them by torch and by the
Triton kernel, in the interpreter and compiled without a GPU."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.attention.device_pages import (
    AskedPages,
    DevicePages,
    PageLister,
    TableSize,
    list_pages,
)
from pando_worker.attention.staging import Staging
from pando_worker.batch import PageChanges
from pando_worker.cuda import page_lists
from tests.examples import examples
from tests.worker.cuda.kernels.poisoned import Poisoned

CPU = torch.device("cpu")
in_interpreter = pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the kernel")


@in_interpreter
@pytest.mark.parametrize("lister", [list_pages, page_lists.list_pages])
@settings(max_examples=examples(40))
@given(
    parts=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3000), st.integers(1, 3000)),
        min_size=1,
        max_size=6,
    ),
    more=st.sampled_from([0, 1, 3000]),
)
def test_pages_are_listed_row_after_row(
    parts: list[tuple[int, int, int]], more: int, lister: PageLister
) -> None:
    """With memory around all arrays that must not be used."""
    table = Poisoned(torch.arange(5 * 3000, dtype=torch.int32).view(5, 3000))
    parts = [(row, first, min(count, 3000 - first)) for row, first, count in parts if first < 3000]
    if not parts:
        return
    rows, firsts, counts = (torch.tensor(x, dtype=torch.int32) for x in zip(*parts, strict=True))
    indptr = torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
    arrays = [Poisoned(x) for x in (rows, firsts, indptr)]
    rows, firsts, indptr = (x.tensor for x in arrays)
    got = lister(table.tensor, rows, firsts, indptr, int(indptr[-1]), int(counts.max()) + more)
    expected = [table.tensor[row, first : first + count] for row, first, count in parts]
    assert got.dtype == torch.int32
    assert got.tolist() == torch.cat(expected).tolist()
    for each in (table, *arrays):
        each.check()


@in_interpreter
def test_nothing_is_written_beside_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Poisoned(torch.zeros(1500, dtype=torch.int32))
    new_empty = torch.Tensor.new_empty

    def poisoned(self: torch.Tensor, *shape: int, **options: Any) -> torch.Tensor:
        return out.tensor if shape == (1500,) else new_empty(self, *shape, **options)

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
    table = torch.arange(4000, dtype=torch.int32).view(2, 2000)
    rows, firsts, indptr = (
        torch.tensor(x, dtype=torch.int32) for x in ([1, 0], [500, 7], [0, 1490, 1500])
    )
    got = page_lists.list_pages(table, rows, firsts, indptr, 1500, 1490)
    out.check()
    assert got.tolist() == [*range(2500, 3990), *range(7, 17)]


@pytest.mark.parametrize(
    "capability", [90, *(pytest.param(other, marks=pytest.mark.long) for other in (80, 89, 100))]
)
def test_the_kernel_compiles_for_each_kind_of_gpu(capability: int) -> None:
    """In a process of its own, in which kernels are not interpreted."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.worker.cuda.kernels.compile_page_lists", str(capability)],
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_changes_are_put_into_both_tables() -> None:
    tables = DevicePages(TableSize(rows=3, pages=4), CPU, list_pages, windows=True)
    tables.pad(50, 60)
    numbers = np.array([[0, 0, 2], [0, 1, 3], [7, 8, 9], [17, 18, 19]], dtype=np.int32)
    tables.apply(PageChanges(*numbers), Staging(CPU))
    numbers_asked = [[2, 0, tables.padding_row], [3, 0, 0], [0, 1, 3, 4]]
    asked = AskedPages(*(torch.tensor(x, dtype=torch.int32) for x in numbers_asked))

    def listed(*, released: bool) -> list[int]:
        pages = tables.listed(asked, 4, 2, released=released)
        return pages.tolist()

    assert listed(released=False) == [9, 7, 8, 50]
    assert listed(released=True) == [19, 17, 18, 60]


def test_staged_arrays_stay_as_they_are_while_a_plan_takes_more() -> None:
    staging = Staging(CPU)
    arrays = [np.full(count, count, dtype=np.int32) for count in (3000, 3000, 1, 20_000)]
    staged = [*staging.pinned(*arrays[:2]), *(staging.pinned(x)[0] for x in arrays[2:])]
    for array, got in zip(arrays, staged, strict=True):
        assert got.tolist() == array.tolist()
