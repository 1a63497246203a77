"""Compiles the Triton kernels without a GPU: python -m tests.worker.cuda.compile_kernels 90 bf16.

Prints the rows of a tile and the bytes of shared memory of each variant.
"""

import sys

from triton import compile as triton_compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pando_worker.cuda.expert_product import (
    BLOCK_IN,
    BLOCK_OUT,
    LEAST_ROWS,
    MOST_ROWS,
    _expert_product,
)


def main(capability: int, dtype: str) -> None:
    pointers = dict.fromkeys(("x", "weight", "out"), f"*{dtype}") | {"ends": "*i32"}
    for rows in (LEAST_ROWS, MOST_ROWS):
        constants = {
            "EXPERTS": 128,
            "BLOCK_ROWS": rows,
            "BLOCK_OUT": BLOCK_OUT,
            "BLOCK_IN": BLOCK_IN,
        }
        types = {
            name: pointers.get(name, "i32")
            for name in _expert_product.arg_names
            if name not in constants
        } | dict.fromkeys(constants, "constexpr")
        source = ASTSource(_expert_product, types, constants)
        compiled = triton_compile(source, target=GPUTarget("cuda", capability, 32))
        assert len(compiled.asm["cubin"]) > 0
        print(rows, compiled.metadata.shared)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
