"""Builds the C++ in `native/` for this machine, once, and loads it.

The library lies in the user's cache directory under a name made of its sources, the compiler and
the processor's features, so a change of any of them builds it anew. Two workers that start at once
build it twice; the last one's file stays, which is the same.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).with_name("native")
FLAGS = (
    "-O3",
    "-march=native",
    "-std=c++20",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fopenmp",
    "-fPIC",
    "-shared",
)
COMPILE_S = 120

_P, _N, _F, _I = ctypes.c_void_p, ctypes.c_long, ctypes.c_float, ctypes.c_int

# As in kernels.cpp; only a new tape is returned.
_SIGNATURES: dict[str, list[type]] = {
    "pando_tape_new": [],
    "pando_tape_free": [_P],
    "pando_record": [_P],
    "pando_play": [_P, _I],
    "pando_linear": [_P, _N, _P, _P, _P, _N, _N, _N, _I],
    "pando_rms_norm": [_P, _N, _P, _F, _P, _N, _N, _F],
    "pando_add_rms_norm": [_P, _P, _P, _F, _P, _N, _N, _F],
    "pando_embed": [_P, _P, _P, _N, _N, _N],
    "pando_angles": [_P, _P, _F, _P, _P, _N, _N],
    "pando_best": [_P, _N, _P, _P, _N, _N, _I],
    "pando_gated": [_P, _P, _N, _N, _I, _I],
    "pando_rotate": [_P, _N, _P, _P, _P, _N, _N, _N],
    "pando_store": [_P, _N, _P, _P, _N, _N],
    "pando_attend": [
        *(_P, _N, _P, _P, _P, _P, _N, _P, _P, _P),
        *(_N, _N, _N, _N, _N, _N, _N, _F, _F, _I),
    ],
}


class KernelsUnavailable(Exception):  # noqa: N818, a state of the machine and no programming error
    """No compiler, or it failed; the message says which."""


def load_kernels() -> ctypes.CDLL:
    """The library, built if need be.

    Raises:
        KernelsUnavailable
    """
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")
    if compiler is None:
        raise KernelsUnavailable("no C++ compiler (g++, c++ or $CXX)")
    path = _cache_directory() / f"kernels-{_fingerprint(compiler)}.so"
    if not path.is_file():
        _build(compiler, path)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelsUnavailable(f"cannot load {path}: {error}") from error
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None
    library.pando_tape_new.restype = _P
    return library


def _build(compiler: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            made = Path(directory) / path.name
            command = [compiler, *FLAGS, "-o", str(made), str(SOURCES / "kernels.cpp")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S)
            if done.returncode != 0:
                raise KernelsUnavailable(f"{compiler} failed: {done.stderr.strip()[-500:]}")
            made.replace(path)  # whole or not at all
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelsUnavailable(f"cannot build {path}: {error}") from error


def _cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "pando"


def _fingerprint(compiler: str) -> str:
    """Of all that the library's code depends on."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    stat = Path(compiler).resolve().stat()
    digest.update(f"{compiler} {stat.st_size} {stat.st_mtime_ns} {FLAGS}".encode())
    digest.update(_processor().encode())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """What `-march=native` looks at, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    keys = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in keys}))
