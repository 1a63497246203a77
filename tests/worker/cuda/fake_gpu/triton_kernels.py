"""Pando's Triton kernels on a fake GPU: launches with the memory that they use, which compute in
torch what the kernels do."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from pando_worker.attention import device_pages, kv_pool
from pando_worker.attention.backend import AttentionLayer, HeadTurn, LayerKV
from pando_worker.attention.flashinfer import fp8_queries
from pando_worker.models.fp8 import Fp8Matrix, quantized
from pando_worker.models.mixture import ExpertGate, ExpertWeights, Routes
from tests.worker.cuda.fake_gpu.device import Range
from tests.worker.cuda.fake_gpu.kernels import kernel
from tests.worker.cuda.fake_gpu.tensors import raw, used
from tests.worker.cuda.kernels.drawing import drawn
from tests.worker.cuda.kernels.turning import turned


def expert_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """As `pando_worker.cuda.expert_product.expert_product`."""
    out = torch.empty(len(x), weight.shape[1], dtype=x.dtype, device=x.device)
    plain_x, plain_weight, plain_ends, target = raw(x), raw(weight), raw(ends), raw(out)

    def run() -> None:
        first = 0
        for expert, end in enumerate(plain_ends.tolist()):
            target[first:end] = plain_x[first:end] @ plain_weight[expert].T
            first = end

    kernel("expert_product", run, [x, weight, ends], [out])
    return out


def fused_experts(
    x: Tensor, weights: Tensor, routes: Routes, experts: ExpertWeights, gate: ExpertGate
) -> Tensor:
    """As `pando_worker.cuda.fused_experts.fused_experts`."""
    out = torch.empty_like(x)
    target = raw(out)
    plain_x, shares = raw(x), raw(weights)
    chosen = shares.shape[1]
    _, rows, _, ends = map(raw, routes[:4])
    parts = [None if w is None else raw(w) for w in experts]
    gate_up, gate_up_bias, down, down_bias, gate_up_scales, down_scales = parts
    assert gate_up is not None and down is not None

    def run() -> None:
        total = torch.zeros(plain_x.shape)
        first = 0
        for expert, end in enumerate(ends.tolist()):
            places = rows[first:end]
            both = functional.linear(
                plain_x[places // chosen].float(),
                _matrix(gate_up, gate_up_scales, expert),
                None if gate_up_bias is None else gate_up_bias[expert].float(),
            )
            outputs = functional.linear(
                gate(both).to(plain_x.dtype).float(),
                _matrix(down, down_scales, expert),
                None if down_bias is None else down_bias[expert].float(),
            )
            total.index_add_(0, places // chosen, outputs * shares.flatten()[places, None])
            first = end
        target.copy_(total)

    read = [x, weights, *routes[:4], *(w for w in experts if w is not None)]
    name = "fused_experts" if gate_up_scales is None else "fused_experts with scales"
    kernel(name, run, read, [out])
    return out


def _matrix(weight: Tensor, scales: Tensor | None, expert: int) -> Tensor:
    if scales is None:
        return weight[expert].float()
    is_by_row = scales.shape[1] == weight.shape[1]
    own = scales[expert, :, 0] if is_by_row else scales[expert]
    return Fp8Matrix(weight[expert], own).decoded()


def store_kv(k: Tensor, v: Tensor, pool: LayerKV, slots: Tensor) -> None:
    """As `pando_worker.cuda.kv_store.store_kv`, which writes the slots of its tokens only."""
    plain_k, plain_v, plain_slots = raw(k), raw(v), raw(slots)
    plain_pool = LayerKV(raw(pool.k), raw(pool.v), pool.scales)

    def run() -> None:
        kv_pool.store(plain_pool, plain_slots.long(), plain_k, plain_v)

    def by_values() -> list[Range]:
        written = [part[slot] for slot in set(plain_slots.tolist()) for part in (pool.k, pool.v)]
        return used(written, writes=True)

    kernel("store_kv", run, [k, v, slots], [], by_values)


def turn_heads(
    qkv: Tensor, turn: HeadTurn, layer: AttentionLayer, pool: LayerKV, slots: Tensor
) -> Tensor:
    """As `pando_worker.cuda.turn_heads.turn_heads`, which writes the slots of its tokens only."""
    out = torch.empty(len(qkv), layer.heads, layer.head_dim, dtype=qkv.dtype, device=qkv.device)
    plain_qkv, plain_slots, target = raw(qkv), raw(slots), raw(out)
    plain_pool = LayerKV(raw(pool.k), raw(pool.v), pool.scales)
    norms = [None if norm is None else raw(norm) for norm in (turn.q_norm, turn.k_norm)]
    plain = replace(turn, table=raw(turn.table), q_norm=norms[0], k_norm=norms[1])

    def run() -> None:
        q, k, v = turned(plain_qkv, plain, layer)
        target.copy_(q)
        kv_pool.store(plain_pool, plain_slots.long(), k, v)

    def by_values() -> list[Range]:
        written = [part[slot] for slot in set(plain_slots.tolist()) for part in (pool.k, pool.v)]
        return used(written, writes=True)

    read = [qkv, turn.table, slots, *(x for x in (turn.q_norm, turn.k_norm) if x is not None)]
    kernel("turn_heads", run, read, [out], by_values)
    return out


def quantize(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """As `pando_worker.cuda.fp8_quantize.quantize`."""
    tokens, inputs = x.shape
    values = torch.empty(tokens, inputs, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(tokens, inputs // group, dtype=torch.float32, device=x.device)
    plain, targets = raw(x), (raw(values), raw(scales))

    def run() -> None:
        for target, numbers in zip(targets, quantized(plain, group), strict=True):
            target.copy_(numbers)

    kernel("quantize", run, [x], [values, scales])
    return values, scales


def quantize_queries(q: Tensor) -> tuple[Tensor, Tensor]:
    """As `pando_worker.cuda.fp8_quantize.quantize_queries`."""
    values = torch.empty(q.shape, dtype=torch.float8_e4m3fn, device=q.device)
    scales = torch.empty(q.shape[1], dtype=torch.float32, device=q.device)
    plain, targets = raw(q), (raw(values), raw(scales))

    def run() -> None:
        for target, numbers in zip(targets, fp8_queries.quantized_queries(plain), strict=True):
            target.copy_(numbers)

    kernel("quantize_queries", run, [q], [values, scales])
    return values, scales


def draw_tokens(logits: Tensor, limits: Tensor) -> Tensor:
    """As `pando_worker.cuda.sampling.draw_tokens`."""
    out = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    plain, numbers, target = raw(logits), raw(limits), raw(out)

    def run() -> None:
        for row, (own, of_row) in enumerate(zip(plain, numbers.T.tolist(), strict=True)):
            target[row] = drawn(own.double().numpy(), of_row)

    kernel("draw_tokens", run, [logits, limits], [out])
    return out


def list_pages(
    table: Tensor, rows: Tensor, firsts: Tensor, indptr: Tensor, count: int, most: int
) -> Tensor:
    """As `pando_worker.cuda.page_lists.list_pages`."""
    out = torch.empty(count, dtype=table.dtype, device=table.device)
    plain_table, target = raw(table), raw(out)
    plain_rows, plain_firsts, plain_indptr = raw(rows), raw(firsts), raw(indptr)

    def run() -> None:
        pages = device_pages.list_pages(
            plain_table, plain_rows, plain_firsts, plain_indptr, count, most
        )
        target.copy_(pages)

    kernel("list_pages", run, [table, rows, firsts, indptr], [out])
    return out
