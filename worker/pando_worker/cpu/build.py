"""Builds the C++ in `native/` into a library for one kind of processor.

`library.py` builds for the current machine; `prebuilt.py` builds for kinds of processors, so that
images need no compiler.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).with_name("native")
FLAGS = (
    "-O3",
    "-std=c++20",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fopenmp",
    "-fPIC",
    "-shared",
)
COMPILE_S = 600  # it takes 20 alone; beside other work of two cores an image took over 120


class KernelsUnavailable(Exception):  # noqa: N818, a state of the machine and no programming error
    """There is no compiler or it failed, and there is no prebuilt library; the message says
    which."""


def find_compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")


def build(compiler: str, path: Path, architecture: str) -> None:
    """Builds the library at `path`, completely or not at all.

    Args:
        architecture: the value of `-march`

    Raises:
        KernelsUnavailable
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            made = Path(directory) / path.name
            source = str(SOURCES / "kernels.cpp")
            command = [compiler, *FLAGS, f"-march={architecture}", "-o", str(made), source]
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S)
            if done.returncode != 0:
                raise KernelsUnavailable(f"{compiler} failed: {done.stderr.strip()[-500:]}")
            made.replace(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelsUnavailable(f"cannot build {path}: {error}") from error


def fingerprint(*parts: str) -> str:
    """A digest of the sources, the flags and the other given parts that a library depends on."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    for part in (str(FLAGS), *parts):
        digest.update(part.encode())
    return digest.hexdigest()[:16]
