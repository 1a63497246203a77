"""Tests that need an NVIDIA GPU and flashinfer: `make test-gpu`. Elsewhere they are skipped with a
reason. flashinfer compiles its kernels at their first use, which takes minutes."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

MINUTES = 15


def _missing() -> str | None:
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU: torch finds none"
    if find_spec("flashinfer") is None:
        return "needs flashinfer: pip install '.[cuda]'"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = _missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.timeout(60 * MINUTES))
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def gpu() -> torch.device:
    return torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def unbroken() -> Iterator[None]:
    """An error of a kernel ends its process's use of the GPU, so all later tests there would fail,
    too. With several processes another takes its place."""
    yield
    if "PYTEST_XDIST_WORKER" in os.environ:
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            os._exit(1)
