"""Triton's kernels run in its interpreter, on the CPU; see `tests/conftest.py`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session")
def products_of_bfloat16() -> Iterator[None]:
    """Triton's interpreter keeps bfloat16 as the integers with its bits, and multiplies these."""
    import triton.language as tl  # after the variable above is set
    from triton.runtime import interpreter

    dot = interpreter.interpreter_builder.create_dot

    def widened(part: Any) -> Any:
        if part.dtype.scalar != tl.bfloat16:
            return part
        values = (part.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(values, tl.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            interpreter.interpreter_builder,
            "create_dot",
            lambda a, b, *rest: dot(widened(a), widened(b), *rest),
        )
        yield
