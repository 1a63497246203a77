"""Which of flashinfer's kernels an image has compiled, as it has no nvcc.

flashinfer takes a kernel from its own folder `data/aot` before it compiles one.
`pando_worker.runner.cuda.prebuild` puts kernels there for some shapes of layers, and a record of
them.
"""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import msgspec
import torch

from pando_worker.attention.flashinfer.kind import AttentionKind, Formats

DISTRIBUTION = "flashinfer-python"


class AttentionShape(msgspec.Struct, frozen=True):
    """What flashinfer compiles attention for; types are torch's names."""

    head_dim: int
    v_head_dim: int
    dtype: str
    kv_dtype: str
    latent: bool = False
    windowed: bool = False
    capped: bool = False
    sinks: bool = False

    @classmethod
    def of(cls, kind: AttentionKind, formats: Formats) -> "AttentionShape":
        return cls(
            kind.head_dim,
            kind.v_head_dim,
            _name(formats.dtype),
            _name(formats.kv_dtype),
            latent=kind.latent,
            windowed=kind.window is not None,
            capped=kind.soft_cap is not None,
            sinks=kind.sinks,
        )

    def __str__(self) -> str:
        """For messages: the heads and types, and what is true of the layers."""
        flags = [name for name in ("latent", "windowed", "capped", "sinks") if getattr(self, name)]
        sizes = f"heads of {self.head_dim} and {self.v_head_dim}"
        return ", ".join([sizes, f"{self.dtype} with keys in {self.kv_dtype}", *flags])


class Prebuilt(msgspec.Struct, frozen=True):
    """The record of an image's kernels.

    Attributes:
        version: of flashinfer
        architectures: as nvcc names them, such as 8.0 and 9.0a
        shapes: for each, all kernels that a worker needs are there
    """

    version: str
    architectures: list[str]
    shapes: list[AttentionShape]

    def lacks(self, shapes: list[AttentionShape], capability: tuple[int, int]) -> str | None:
        """What of these shapes a GPU cannot run; None if it can run all."""
        if not any(_runs(name, capability) for name in self.architectures):
            compiled = ", ".join(self.architectures)
            return f"compute capability {_dotted(capability)} (the image has {compiled})"
        missing = [str(shape) for shape in shapes if shape not in self.shapes]
        return "; ".join(missing) or None


def kernels_folder() -> Path | None:
    """Where flashinfer looks for compiled kernels; None if it is not installed."""
    spec = find_spec("flashinfer")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "data" / "aot"


def read_prebuilt() -> Prebuilt | None:
    """The record beside the kernels; None without one, or if flashinfer has another version."""
    folder = kernels_folder()
    if folder is None or not (record := folder / "pando.json").exists():
        return None
    found = msgspec.json.decode(record.read_bytes(), type=Prebuilt)
    return found if found.version == version(DISTRIBUTION) else None


def write_record(folder: Path, prebuilt: Prebuilt) -> None:
    (folder / "pando.json").write_bytes(msgspec.json.format(msgspec.json.encode(prebuilt)))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def _runs(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether a GPU runs code for an architecture: one of its own generation that is not later, and
    for a name with an a, such as 9.0a, no other."""
    major, minor = architecture.rstrip("af").split(".")
    built = int(major), int(minor)
    if architecture.endswith("a"):
        return built == capability
    return built[0] == capability[0] and built[1] <= capability[1]
