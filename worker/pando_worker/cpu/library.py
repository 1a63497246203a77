"""Loads the C++ kernels: built once for this machine if there is a compiler, else prebuilt.

The built library is in the user's cache directory. Its name is made from the sources, the compiler
and the processor's features, so a change of any of them causes a new build. If several workers
start at the same time, one builds and the others wait.
"""

import ctypes
import os
from pathlib import Path

from pando_worker.cpu import processor
from pando_worker.cpu.build import COMPILE_S, KernelsUnavailable, build, find_compiler, fingerprint
from pando_worker.cpu.prebuilt import find_prebuilt
from pando_worker.user_cache import cache_directory, one_at_a_time

_P, _N, _F, _I = ctypes.c_void_p, ctypes.c_long, ctypes.c_float, ctypes.c_int

# As in kernels.cpp; only the function that creates a tape returns a value.
_SIGNATURES: dict[str, list[type]] = {
    "pando_tape_new": [],
    "pando_tape_free": [_P],
    "pando_record": [_P],
    "pando_play": [_P, _I],
    "pando_linear": [_P, _N, _P, _P, _P, _N, _N, _N, _I, _I],
    "pando_lora_shrink": [_P, _P, _N, _P, _P, _P, _P, _I],
    "pando_lora_expand": [_P, _P, _P, _P, _P, _P, _N, _N, _I],
    "pando_quantize": [_P, _N, _N, _N, _I, _P, _P, _P, _I],
    "pando_grouped_linear": [*(_P,) * 6, _I, _I, _I, _P, _P, _N, _N, _N, _N, _I],
    "pando_grouped_embed": [_P, _P, _P, _P, _I, _I, _I, _P, _N, _N, _N],
    "pando_rms_norm": [_P, _N, _P, _F, _P, _N, _N, _F],
    "pando_layer_norm": [_P, _P, _P, _P, _N, _N, _F, _I],
    "pando_add": [_P, _P, _P, _N, _I],
    "pando_gelu": [_P, _P, _N, _I],
    "pando_add_rms_norm": [_P, _P, _P, _F, _P, _N, _N, _F],
    "pando_embed": [_P, _P, _P, _N, _N, _N, _I],
    "pando_angles": [_P, _P, _F, _P, _P, _N, _N],
    "pando_best": [_P, _N, _P, _P, _N, _N, _I],
    "pando_totals": [_P, _N, _P, _N, _N, _I],
    "pando_forbid": [_P, _N, _P, _N, _N, _N, _I],
    "pando_gated": [_P, _P, _N, _N, _I, _I],
    "pando_rotate": [_P, _N, _P, _P, _P, _N, _N, _N],
    "pando_store": [_P, _N, _P, _P, _N, _N, _I],
    "pando_attend": [
        *(_P, _N, _P, _P, _P, _P, _N, _P, _P, _P, _P, _P, _P),
        *(_N, _N, _N, _N, _N, _N, _N, _N, _F, _F, _I, _I, _I),
    ],
}


def load_kernels() -> ctypes.CDLL:
    """The library, built if necessary.

    Raises:
        KernelsUnavailable
    """
    path = library()
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelsUnavailable(f"cannot load {path}: {error}") from error
    for name, arguments in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, None
    loaded.pando_tape_new.restype = _P
    return loaded


def library() -> Path:
    """The library's path, built if necessary.

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
        raise KernelsUnavailable("no C++ compiler (g++, c++ or $CXX) and no prebuilt library")
    stat = Path(compiler).resolve().stat()
    made_by = f"{compiler} {stat.st_size} {stat.st_mtime_ns}"
    try:
        path = cache_directory() / f"kernels-{fingerprint(made_by, processor.description())}.so"
        if not path.is_file():
            with one_at_a_time(path.with_name("kernels.lock"), COMPILE_S):
                if not path.is_file():
                    build(compiler, path, "native")
    except PermissionError as error:
        raise KernelsUnavailable(
            f"cannot build {error.filename}: {error.strerror}; set XDG_CACHE_HOME to a folder that"
            f" user {os.getuid()} may write to"
        ) from error
    except OSError as error:
        raise KernelsUnavailable(f"cannot build kernels: {error}") from error
    return path
