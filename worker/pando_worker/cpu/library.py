"""Loads the C++ kernels: built for this machine, once, where a compiler is, else built beforehand.

What is built here lies in the user's cache directory under a name made of its sources, the compiler
and the processor's features, so a change of any of them builds it anew. Two workers that start at
once build it twice; the last one's file stays, which is the same.
"""

import ctypes
import os
import platform
from pathlib import Path

from pando_worker.cpu.build import KernelsUnavailable, build, find_compiler, fingerprint
from pando_worker.cpu.prebuilt import find_prebuilt

_P, _N, _F, _I = ctypes.c_void_p, ctypes.c_long, ctypes.c_float, ctypes.c_int

# As in kernels.cpp; only a new tape is returned.
_SIGNATURES: dict[str, list[type]] = {
    "pando_tape_new": [],
    "pando_tape_free": [_P],
    "pando_record": [_P],
    "pando_play": [_P, _I],
    "pando_linear": [_P, _N, _P, _P, _P, _N, _N, _N, _I],
    "pando_quantize": [_P, _N, _N, _N, _I, _P, _P, _P, _I],
    "pando_grouped_linear": [*(_P,) * 6, _I, _I, _I, _P, _P, _N, _N, _N, _N, _I],
    "pando_grouped_embed": [_P, _P, _P, _P, _I, _I, _I, _P, _N, _N, _N],
    "pando_rms_norm": [_P, _N, _P, _F, _P, _N, _N, _F],
    "pando_add_rms_norm": [_P, _P, _P, _F, _P, _N, _N, _F],
    "pando_embed": [_P, _P, _P, _N, _N, _N],
    "pando_angles": [_P, _P, _F, _P, _P, _N, _N],
    "pando_best": [_P, _N, _P, _P, _N, _N, _I],
    "pando_gated": [_P, _P, _N, _N, _I, _I],
    "pando_rotate": [_P, _N, _P, _P, _P, _N, _N, _N],
    "pando_store": [_P, _N, _P, _P, _N, _N, _I],
    "pando_attend": [
        *(_P, _N, _P, _P, _P, _P, _N, _P, _P, _P),
        *(_N, _N, _N, _N, _N, _N, _N, _F, _F, _I, _I),
    ],
}


def load_kernels() -> ctypes.CDLL:
    """The library, built if need be.

    Raises:
        KernelsUnavailable
    """
    path = _library()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelsUnavailable(f"cannot load {path}: {error}") from error
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None
    library.pando_tape_new.restype = _P
    return library


def _library() -> Path:
    """Where it lies.

    Raises:
        KernelsUnavailable
    """
    try:
        return _built_here()
    except KernelsUnavailable:
        if prebuilt := find_prebuilt():
            return prebuilt
        raise


def _built_here() -> Path:
    """Raises KernelsUnavailable."""
    compiler = find_compiler()
    if compiler is None:
        raise KernelsUnavailable("no C++ compiler (g++, c++ or $CXX), and none built beforehand")
    stat = Path(compiler).resolve().stat()
    made_by = f"{compiler} {stat.st_size} {stat.st_mtime_ns}"
    path = _cache_directory() / f"kernels-{fingerprint(made_by, _processor())}.so"
    if not path.is_file():
        build(compiler, path, "native")
    return path


def _cache_directory() -> Path:
    """Raises KernelsUnavailable."""
    try:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise KernelsUnavailable(
            f"user {os.getuid()} has no home directory to keep built kernels in; set HOME or"
            " XDG_CACHE_HOME to a folder that it may write to"
        ) from error
    return Path(root) / "pando"


def _processor() -> str:
    """What `-march=native` looks at, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    keys = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in keys}))
