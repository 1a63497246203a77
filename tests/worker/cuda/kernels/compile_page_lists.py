"""Compiles the Triton kernel that lists pages, which needs no GPU: for capability 9.0,
`python -m tests.worker.cuda.kernels.compile_page_lists 90`."""

import sys

from triton import compile as triton_compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pando_worker.cuda.page_lists import BLOCK, _list_pages


def main(capability: int) -> None:
    types = {
        name: "constexpr" if name == "BLOCK" else "i32" if name == "width" else "*i32"
        for name in _list_pages.arg_names
    }
    source = ASTSource(_list_pages, types, {"BLOCK": BLOCK})
    compiled = triton_compile(source, target=GPUTarget("cuda", capability, 32))
    assert len(compiled.asm["cubin"]) > 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
