"""What this machine lacks to compile kernels for its GPU.

flashinfer compiles each kernel at its first use, unless the package `flashinfer-jit-cache` has it.
Triton brings its compiler, but for the function that launches a kernel it needs one for C.
"""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

_DEFAULT_CUDA = Path("/usr/local/cuda")


def missing_for_flashinfer() -> str | None:
    """Why it cannot run here; None if it can compile its kernels, or need not."""
    if find_spec("flashinfer") is None:
        return "it is not installed; the extra `cuda` of pando-serve has it"
    if find_spec("flashinfer_jit_cache") is not None:
        return None
    missing = [
        tool
        for tool, found in (
            ("nvcc", _nvcc()),
            ("ninja", shutil.which("ninja")),
            ("a C++ compiler", shutil.which(os.environ.get("CXX", "c++"))),
        )
        if not found
    ]
    if not missing:
        return None
    are = "is" if len(missing) == 1 else "are"
    listed = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
    return (
        f"it compiles its kernels on this machine, where {listed} {are} missing; install what is"
        " missing, or flashinfer-jit-cache, which has the kernels"
    )


def missing_for_triton() -> str | None:
    """Why it cannot compile kernels; None if it can."""
    compilers = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    if any(shutil.which(compiler) for compiler in compilers):
        return None
    return f"Triton needs a C compiler, and there is no {' or '.join(compilers)}"


def _nvcc() -> bool:
    """Where flashinfer looks for it."""
    if "FLASHINFER_NVCC" in os.environ:
        return shutil.which(os.environ["FLASHINFER_NVCC"]) is not None
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home is None and shutil.which("nvcc"):
        return True
    return shutil.which("nvcc", path=Path(home or _DEFAULT_CUDA) / "bin") is not None
