"""Prebuilt libraries for images without a compiler: one for each kind of processor.

`python -m pando_worker.cpu.prebuilt` builds those of this machine's architecture into the package.
A library's name has the fingerprint of its sources, so one of other sources is never loaded.
"""

import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from pando_worker.cpu import processor
from pando_worker.cpu.build import KernelsUnavailable, build, find_compiler, fingerprint

DIRECTORY = Path(__file__).with_name("libraries")


@dataclass(frozen=True, slots=True)
class ProcessorKind:
    """A kind of processor: its name for `-march`, and the flags it must have in /proc/cpuinfo."""

    name: str
    needs: frozenset[str] = frozenset()

    @property
    def path(self) -> Path:
        return DIRECTORY / f"kernels-{fingerprint()}-{self.name}.so"


_V3 = frozenset(("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"))

_V4_VNNI = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"}

# The best first. The kernels use AVX-512's byte products (VNNI), which x86-64-v4 lacks; the named
# processor was the first to have them.
KINDS = {
    "x86_64": (
        ProcessorKind("cascadelake", _V4_VNNI),
        ProcessorKind("x86-64-v3", _V3),
        ProcessorKind("x86-64"),
    ),
    "aarch64": (ProcessorKind("armv8-a"),),
}


def find_prebuilt() -> Path | None:
    """The best library for this processor, if there is one."""
    features = processor.features()
    for kind in KINDS.get(platform.machine(), ()):
        if kind.needs <= features and kind.path.is_file():
            return kind.path
    return None


def main() -> None:
    kinds = KINDS.get(platform.machine())
    compiler = find_compiler()
    if kinds is None or compiler is None:
        sys.exit(f"no C++ compiler, or no kinds of processors known for {platform.machine()}")
    for kind in kinds:
        try:
            build(compiler, kind.path, kind.name)
        except KernelsUnavailable as error:
            sys.exit(str(error))
        print(kind.path)


if __name__ == "__main__":
    main()
