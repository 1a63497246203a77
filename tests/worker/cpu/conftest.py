"""The kernels, built once for all tests here."""

import os
from pathlib import Path

import pytest

from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.library import library, load_kernels


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    """From the user's own cache, like the worker's: compiling takes seconds."""
    return Kernels(load_kernels())


@pytest.fixture
def kernels_file() -> Path:
    """The library in the user's own cache; the prebuilt one without a compiler."""
    return library()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(os.environ, "XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pando"
