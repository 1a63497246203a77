"""The kernels, built once for all tests here."""

import ctypes
import os
from pathlib import Path

import pytest

from pando_worker.cpu.library import load_kernels


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """In the user's own cache, as the worker has it: compiling takes seconds."""
    return load_kernels()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(os.environ, "XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pando"
