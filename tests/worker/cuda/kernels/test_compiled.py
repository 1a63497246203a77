"""Triton kernels compiled for each kind of GPU, which needs no GPU."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [
        (90, "fp16"),
        *(pytest.param(other, "bf16", marks=pytest.mark.long) for other in (80, 89, 100)),
    ],
)
def test_kernels_compile_for_each_kind_of_gpu(capability: int, dtype: str) -> None:
    """In a process of its own, in which kernels are not interpreted."""
    module = "tests.worker.cuda.kernels.compile_kernels"
    done = subprocess.run(
        [sys.executable, "-m", module, str(capability), dtype],
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    compiled = dict(line.split() for line in done.stdout.splitlines())
    assert {"product-16", "product-64", "gate_up-16", "down-64", "store_kv-fp8"} <= set(compiled)
    # Within the shared memory that a block may have on each of them.
    assert all(0 <= int(shared) <= 99 * 1024 for shared in compiled.values()), compiled
