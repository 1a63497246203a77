"""Compiles Triton kernels without a GPU: for capability 9.0 and bfloat16,
`python -m tests.worker.cuda.kernels.compile_kernels 90 bf16`.

Prints each variant and its bytes of shared memory.
"""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from triton import compile as triton_compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pando_worker.cuda import (
    expert_product,
    fp8_quantize,
    fused_experts,
    kv_store,
    sampling,
    turn_heads,
)
from pando_worker.cuda.expert_product import BLOCK_IN, BLOCK_OUT, LEAST_ROWS, MOST_ROWS

TYPES = {
    "ends": "*i32",
    "tokens": "*i64",
    "rows": "*i64",
    "slots": "*i32",
    "shares": "*fp32",
    "scales": "*fp32",
    "table": "*fp32",
    "eps": "fp32",
    "k_factor": "fp32",
    "v_factor": "fp32",
    "alpha": "fp32",
    "shift": "fp32",
    "limit": "fp32",
}
NUMBERS = (
    *("x", "weight", "out", "active", "bias"),
    *("q", "qkv", "q_norm", "k_norm", "k", "v", "keys", "values"),
)


class Variant(NamedTuple):
    name: str
    kernel: Any
    constants: dict[str, Any]  # of constexpr parameters, and None for pointers that are left out
    types: dict[str, str]  # of arguments that differ from TYPES


def experts() -> Iterator[Variant]:
    """Few rows with biases, as GPT-OSS has them, and many without."""
    for rows, biased in ((LEAST_ROWS, True), (MOST_ROWS, False)):
        sizes: dict[str, Any] = {
            "EXPERTS": 128,
            "BLOCK_ROWS": rows,
            "BLOCK_OUT": BLOCK_OUT,
            "BLOCK_IN": BLOCK_IN,
        }
        yield Variant(f"product-{rows}", expert_product._expert_product, sizes, {})
        sizes |= {"SCALED": False, "MXFP4": False, "scales": None, "BIASED": biased} | (
            {} if biased else {"bias": None}
        )
        yield Variant(f"down-{rows}", fused_experts._down, sizes, {})
        gate_up = sizes | {"INTERLEAVED": biased}
        yield Variant(f"gate_up-{rows}", fused_experts._gate_up, gate_up, {})


def experts_in_fp8() -> Iterator[Variant]:
    sizes: dict[str, Any] = {"EXPERTS": 128, "BLOCK_OUT": BLOCK_OUT, "BLOCK_IN": BLOCK_IN}
    sizes |= {"SCALED": True, "MXFP4": False, "BIASED": False, "bias": None, "INTERLEAVED": False}
    for rows in (LEAST_ROWS, MOST_ROWS):
        own = sizes | {"BLOCK_ROWS": rows}
        yield Variant(f"down-{rows}-fp8", fused_experts._down, own, {"weight": "*fp8e4nv"})
        yield Variant(f"gate_up-{rows}-fp8", fused_experts._gate_up, own, {"weight": "*fp8e4nv"})


def experts_in_mxfp4() -> Iterator[Variant]:
    sizes: dict[str, Any] = {"EXPERTS": 128, "BLOCK_OUT": BLOCK_OUT, "BLOCK_IN": BLOCK_IN}
    sizes |= {"SCALED": False, "MXFP4": True, "BIASED": True, "INTERLEAVED": True}
    types = {"weight": "*u8", "scales": "*u8"}
    for rows in (LEAST_ROWS, MOST_ROWS):
        own = sizes | {"BLOCK_ROWS": rows}
        yield Variant(f"down-{rows}-mxfp4", fused_experts._down, own, types)
        yield Variant(f"gate_up-{rows}-mxfp4", fused_experts._gate_up, own, types)


def stores() -> Iterator[Variant]:
    for quantized, name in ((False, "store_kv"), (True, "store_kv-fp8")):
        types = {"keys": "*u8", "values": "*u8"} if quantized else {}
        constants = {"QUANTIZED": quantized, "BLOCK": kv_store.BLOCK}
        yield Variant(name, kv_store._store_kv, constants, types)


def turns() -> Iterator[Variant]:
    heads: dict[str, Any] = {"HALF": 64, "REST": 0, "BLOCK": 1, "Q_GROUP": 8, "KV_GROUP": 8}
    sizes = heads | {"QUANTIZED": True, "OFFSET": True, "NORMED": True}
    types = {"keys": "*u8", "values": "*u8"}
    yield Variant("turn_heads-fp8", turn_heads._turn_heads, sizes, types)
    sizes = heads | {"QUANTIZED": False, "OFFSET": False, "NORMED": False, "REST": 32, "BLOCK": 32}
    sizes |= {"q_norm": None, "k_norm": None}
    yield Variant("turn_heads", turn_heads._turn_heads, sizes, {})


def others() -> Iterator[Variant]:
    types = {"logits": "*fp32", "limits": "*fp64", "rows": "i32", "tokens": "*i64"}
    quantize = {"BLOCK": fp8_quantize.MOST_BLOCK}
    own = {"values": "*u8", "largest": "fp32"}
    yield Variant("quantize", fp8_quantize._quantize, quantize, own)
    sizes = {"QUERIES": fp8_quantize.QUERIES, "BLOCK": 128}
    own = {"values": "*u8", "tokens": "i32", "largest": "*i32", "most": "fp32"}
    yield Variant("largest_queries", fp8_quantize._largest_queries, sizes, own)
    yield Variant("quantize_queries", fp8_quantize._quantize_queries, sizes, own)
    yield Variant("draw", sampling._draw, {"BLOCK": sampling.BLOCK}, types)


def main(capability: int, dtype: str) -> None:
    variants = [*experts(), *experts_in_mxfp4(), *stores(), *turns(), *others()]
    if capability >= 89:  # the first with instructions for e4m3
        variants += experts_in_fp8()
    for name, kernel, constants, types in variants:
        constants = {key: value for key, value in constants.items() if key in kernel.arg_names}
        types = dict.fromkeys(NUMBERS, f"*{dtype}") | TYPES | types
        kinds = {
            argument: "constexpr" if argument in constants else types.get(argument, "i32")
            for argument in kernel.arg_names
        }
        # As launches find addresses and sizes: multiples of 16, so that loads run ahead.
        aligned = {
            (index,): [["tt.divisibility", 16]]
            for index, (argument, kind) in enumerate(kinds.items())
            if kind not in ("constexpr", "fp32") and argument != "experts"
        }
        source = ASTSource(kernel, kinds, constants, aligned)
        compiled = triton_compile(source, target=GPUTarget("cuda", capability, 32))
        assert len(compiled.asm["cubin"]) > 0
        print(name, compiled.metadata.shared)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
