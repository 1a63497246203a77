"""Large tensors in host memory are advised to use huge pages."""

from pathlib import Path

import pytest
import torch

from pando_worker.tensors.huge_pages import HUGE, advise_huge_pages

SMAPS = Path("/proc/self/smaps")

pytestmark = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="the system has no huge pages"
)


def is_advised(address: int) -> bool:
    """Whether the system reports the advice for the mapping of an address."""
    inside = False
    for line in SMAPS.read_text().splitlines():
        first, _, rest = line.partition(" ")
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif inside and first == "VmFlags:":
            return "hg" in rest.split()
    raise AssertionError("no such mapping")


def test_a_large_tensor_is_advised_between_its_first_and_last_border() -> None:
    tensor = torch.empty(16 * HUGE, dtype=torch.uint8)
    advise_huge_pages(tensor)
    assert is_advised(tensor.data_ptr() + 8 * HUGE)
    tensor.fill_(7)
    assert bool((tensor == 7).all())


def test_a_small_tensor_is_left_alone() -> None:
    advise_huge_pages(torch.empty(10))
    advise_huge_pages(torch.empty(0))
