"""Compiles the Triton kernels of adapters, which needs no GPU: for capability 9.0,
`python -m tests.worker.cuda.kernels.compile_lora 90`."""

import sys

from triton import compile as triton_compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pando_worker.cuda.lora import BLOCK_IN, BLOCK_OUT, BLOCK_RANKS, _expand, _shrink

POINTERS = {
    "x": "*bf16",
    "y": "*bf16",
    "pages": "*bf16",
    "h": "*fp32",
    "scales": "*fp32",
    "starts": "*i64",
} | dict.fromkeys(("columns", "slot_pages", "ranks", "tokens", "slots", "count"), "*i32")
CONSTANTS = {"BLOCK_RANKS": BLOCK_RANKS, "BLOCK_IN": BLOCK_IN, "BLOCK_OUT": BLOCK_OUT}


def main(capability: int) -> None:
    for kernel in (_shrink, _expand):
        constants = {name: CONSTANTS[name] for name in kernel.arg_names if name in CONSTANTS}
        types = {
            name: "constexpr" if name in constants else POINTERS.get(name, "i32")
            for name in kernel.arg_names
        }
        source = ASTSource(kernel, types, constants)
        compiled = triton_compile(source, target=GPUTarget("cuda", capability, 32))
        assert len(compiled.asm["cubin"]) > 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
