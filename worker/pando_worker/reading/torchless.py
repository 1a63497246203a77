"""Lets transformers take torch for not installed."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_torch() -> Iterator[None]:
    """transformers takes torch for not installed, also after the block. It would import torch,
    which takes seconds of CPU and hundreds of MB, although it reads images with Pillow and numpy,
    and sound with numpy.

    For a process that has not imported torch. After the block it can.
    """
    assert "torch" not in sys.modules, "it would be loaded twice"
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # one says that there is no torch
    sys.modules["torch"] = None  # type: ignore[assignment]  # Python's way to refuse an import
    try:
        yield
    finally:
        del sys.modules["torch"]
