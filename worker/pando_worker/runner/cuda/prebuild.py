"""Compiles flashinfer's kernels ahead, for images without nvcc, on a machine without a GPU.

    python -m pando_worker.runner.cuda.prebuild write DIR    sources, and a file for ninja
    ninja -C DIR                                             compiles them to DIR/aot
    python -m pando_worker.runner.cuda.prebuild check        fails and names what is missing there

`write` wants `FLASHINFER_CUDA_ARCH_LIST`, the GPUs' architectures, as in "8.0 9.0a"; `check` looks
into the folder `flashinfer/data/aot`, to which DIR/aot must be moved. Which kernels flashinfer has
for a shape of layers differs between its versions, so they are not listed here: each call that a
worker makes for that shape is made until it asks for its kernel.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from pando_worker.attention.backend import LayerKV
from pando_worker.attention.flashinfer.calls import (
    INT_WORKSPACE_BYTES,
    TENSOR_CORE_GROUP,
    Appends,
    AttentionCall,
    FixedRows,
    KernelCall,
    Memory,
    Role,
)
from pando_worker.attention.flashinfer.calls_of_kind import compile_call
from pando_worker.attention.flashinfer.kind import AttentionKind, Formats, has_fa3
from pando_worker.attention.flashinfer.latent import LatentCall
from pando_worker.attention.flashinfer.library import Library
from pando_worker.attention.staging import Staging
from pando_worker.cuda.ops import ROTARY_DIMS, CudaOps
from pando_worker.cuda.prebuilt import (
    DISTRIBUTION,
    AttentionShape,
    Prebuilt,
    kernels_folder,
    read_prebuilt,
    write_record,
)

# flashinfer reads these as it is imported.
ARCHITECTURES, WORKSPACE = "FLASHINFER_CUDA_ARCH_LIST", "FLASHINFER_WORKSPACE_BASE"
# What flashinfer asks of a GPU before it loads a kernel.
HOPPER = SimpleNamespace(
    major=9,
    minor=0,
    multi_processor_count=132,
    shared_memory_per_multiprocessor=233_472,
    shared_memory_per_block_optin=232_448,
)
_CPU = torch.device("cpu")
_WORKSPACE_BYTES = 2**20  # nothing is computed in it


def _plain(size: int, **flags: bool) -> list[AttentionShape]:
    """Attention with heads of one size, with keys in both types."""
    return [
        AttentionShape(size, size, "bfloat16", kv, **flags) for kv in ("bfloat16", "float8_e4m3fn")
    ]


# flashinfer names a kernel with sinks by the type of queries only, so there is one for each.
SHAPES = [
    *_plain(64),  # small Llama and Qwen
    *_plain(128),  # Llama, Qwen, Mistral, OLMo
    *_plain(128, windowed=True),  # OLMo 3, Mistral with a window
    *_plain(256),  # Gemma 3
    *_plain(256, windowed=True),
    *_plain(256, capped=True),  # Gemma 2
    *_plain(256, capped=True, windowed=True),
    AttentionShape(64, 64, "bfloat16", "bfloat16", sinks=True),  # gpt-oss
    AttentionShape(64, 64, "bfloat16", "bfloat16", sinks=True, windowed=True),
    AttentionShape(64, 512, "bfloat16", "bfloat16", latent=True),  # DeepSeek
]


class _Asked(Exception):  # noqa: N818, no error
    """A call has asked for its kernel."""

    def __init__(self, spec: Any) -> None:
        super().__init__(spec.name)
        self.spec = spec


@contextmanager
def _without_a_gpu() -> Iterator[None]:
    """flashinfer takes the CPU for a Hopper GPU, which has every kind of kernel, and calls end with
    `_Asked` as soon as they need a kernel."""

    def ask(spec: Any) -> Any:
        raise _Asked(spec)

    def empty(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        return unpinned(*args, **kwargs)  # pinning needs a driver

    unpinned, specs = torch.empty, import_module("flashinfer.jit.core").JitSpec
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch, "empty", empty))
        stack.enter_context(mock.patch.object(specs, "build_and_load", ask))
        stack.enter_context(
            mock.patch.object(torch.cuda, "get_device_properties", lambda _: HOPPER)
        )
        for name, module in list(sys.modules.items()):
            if name.startswith("flashinfer") and hasattr(module, "get_compute_capability"):
                given = mock.patch.object(module, "get_compute_capability", lambda _: (9, 0))
                stack.enter_context(given)
        yield


def needed_kernels(shapes: list[AttentionShape]) -> dict[str, Any]:
    """flashinfer's `JitSpec` of each kernel that workers need for these shapes, by name."""
    library = Library()
    calls = [*_operations(library), *(c for shape in shapes for c in _attention(library, shape))]
    found = {}
    with _without_a_gpu():
        for call in calls:
            try:
                call()
            except _Asked as asked:
                found[asked.spec.name] = asked.spec
            else:
                raise RuntimeError(f"{call} asks flashinfer for no kernel")
    return found


def _attention(library: Library, shape: AttentionShape) -> Iterator[Callable[[], None]]:
    """A plan of each call that layers of a shape make."""
    for heads in (1, TENSOR_CORE_GROUP):
        yield from _attention_of(library, shape, heads)


def _attention_of(
    library: Library, shape: AttentionShape, heads: int
) -> Iterator[Callable[[], None]]:
    kind = AttentionKind(
        heads=heads,
        kv_heads=1,
        head_dim=shape.head_dim,
        v_head_dim=shape.v_head_dim,
        scale=1.0,
        window=8 if shape.windowed else None,
        soft_cap=1.0 if shape.capped else None,
        sinks=shape.sinks,
        latent=shape.latent,
    )
    dtype, kv_dtype = getattr(torch, shape.dtype), getattr(torch, shape.kv_dtype)
    formats = Formats(dtype, kv_dtype, page_size=1)
    staging = Staging(_CPU)

    def planned(make: Callable[[Memory], AttentionCall]) -> None:
        workspace = torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8)
        compile_call(make(Memory.new(workspace, INT_WORKSPACE_BYTES)), staging, _CPU)

    if shape.latent:
        for is_fa3 in (False, True):
            yield partial(
                planned,
                lambda memory, is_fa3=is_fa3: LatentCall(  # type: ignore[misc]
                    library, kind, formats, memory.workspace, is_fa3=is_fa3
                ),
            )
        return
    fixed = FixedRows.new(1, torch.zeros(1, dtype=torch.int32))
    choices: list[tuple[Role, FixedRows | None, bool]] = [
        (Role.EXTEND, None, False),
        (Role.DECODE, fixed, False),
    ]
    if has_fa3(kind, formats, _CPU):
        choices.append((Role.EXTEND, None, True))
    for role, rows, is_fa3 in choices:
        yield partial(
            planned,
            lambda memory, role=role, rows=rows, is_fa3=is_fa3: KernelCall(  # type: ignore[misc]
                library, kind, role, formats, memory, rows, is_fa3=is_fa3
            ),
        )


def _operations(library: Library) -> Iterator[Callable[[], Any]]:
    """What all models call. Norms compile without nvcc, and our own kernel samples."""
    ops, dim = CudaOps(), min(ROTARY_DIMS)
    heads = torch.zeros(1, 2, dim, dtype=torch.bfloat16)
    one = torch.zeros(1, dtype=torch.int32)
    yield lambda: ops.rotate(heads, (torch.zeros(1, dim), one))
    yield lambda: ops.rotate(heads[:, :1], (torch.zeros(1, dim), one))
    yield lambda: ops.gated(heads[:, 0])
    yield lambda: ops.gated(heads[:, 0], gelu=True)
    pool = LayerKV(torch.zeros(1, 2, dim), torch.zeros(1, 2, dim))
    yield lambda: Appends(library, 1, _CPU).store(heads, heads, pool, one)
    lse = torch.zeros(1, 2)
    yield lambda: library.merge_state(heads, lse, heads, lse)


def write(directory: Path) -> None:
    """Sources and a file for ninja, which copies kernels to `aot`, and the record beside them."""
    specs = needed_kernels(SHAPES)
    lines = ["ninja_required_version = 1.3", "rule copy", "  command = cp $in $out"]
    for name, spec in specs.items():
        spec.write_ninja()
        copy = f"aot/{name}/{name}.so"
        lines += [f"subninja {spec.ninja_path}", f"build {copy}: copy {spec.jit_library_path}"]
        lines += [f"default {copy}"]
    (directory / "build.ninja").write_text("\n".join([*lines, ""]))
    (directory / "aot").mkdir()
    record = Prebuilt(version(DISTRIBUTION), os.environ[ARCHITECTURES].split(), SHAPES)
    write_record(directory / "aot", record)


def missing_kernels() -> list[str]:
    """Of the shapes in the image's record."""
    prebuilt = read_prebuilt()
    if prebuilt is None:
        return ["pando.json, the record of this version's kernels"]
    os.environ[ARCHITECTURES] = " ".join(prebuilt.architectures)  # flashinfer insists on some
    specs = needed_kernels(prebuilt.shapes)
    return [name for name, spec in specs.items() if not spec.is_aot]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("write", help="sources, and a file for ninja").add_argument(
        "directory", type=Path, help="a new one"
    )
    steps.add_parser("check", help="fail and name the kernels that are missing in flashinfer")
    given = parser.parse_args()
    if given.step == "check":
        with TemporaryDirectory() as sources:
            os.environ[WORKSPACE] = sources
            missing = missing_kernels()
        if missing:
            sys.exit("\n".join(["flashinfer's compiled kernels lack:", *missing]))
        print(f"all of flashinfer's kernels are in {kernels_folder()}")
        return
    if ARCHITECTURES not in os.environ:
        sys.exit(f"{ARCHITECTURES} must name the GPUs' architectures, as in '8.0 9.0a'")
    given.directory.mkdir(parents=True)
    os.environ[WORKSPACE] = str(given.directory.absolute())
    write(given.directory)


if __name__ == "__main__":
    main()
