"""Chooses the code that runs the model's steps on a CPU, C++ kernels or torch, by a race."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import torch
from torch import Tensor

from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.batch import ForwardBatch
from pando_worker.cpu import processor
from pando_worker.cpu.attention import CpuAttention
from pando_worker.cpu.build import KernelsUnavailable
from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.library import load_kernels
from pando_worker.cpu.ops import CpuOps
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.ops import Ops, TorchOps
from pando_worker.runner.cpu.kept_races import raced_once
from pando_worker.runner.cpu.race import FORM, RECORDED, ROWS, Outcome, Shape, race, shapes

log = logging.getLogger("pando.worker.cpu")


@dataclass(frozen=True, slots=True)
class CpuPath:
    ops: Ops
    attention: TorchAttention | CpuAttention


class _Conditions(msgspec.Struct, frozen=True):
    """The conditions on which a race's outcome depends."""

    form: int  # of the race
    processor: str
    library: str  # its name identifies the kernels' sources and the compiler
    torch: str
    threads: int
    recorded: float  # the factor that recording is worth
    page_size: int
    keys: str  # the type of cached keys and values
    weights: list[str]  # the types of multiplied weights
    shapes: list[Shape]
    layers: list[tuple[int, int, int, int, int | None, bool]]


def choose_cpu_path(
    wanted: Literal["auto", "on", "off"],
    *,
    plain: TorchAttention,
    pool: TokenToKVPool,
    dtype: torch.dtype,
    quantized: bool,
    weights: Callable[[], Sequence[Tensor]],
    recorded: bool,
    decodes: Callable[[int], ForwardBatch],
) -> CpuPath:
    """
    Args:
        wanted: `auto` races; `on` requires the kernels and races only for the sizes up to which
            linear layers use them; `off` uses torch.
        plain: attention with torch
        quantized: whether some weights are integers, which only the kernels support
        weights, recorded, decodes: as in `race`

    Raises:
        UnsupportedModel: `wanted` is `on`, but there are no kernels, or none for this dtype.
    """
    by_torch = CpuPath(TorchOps(), plain)
    if wanted == "off":
        return by_torch
    if quantized:
        return _without_choice(plain, pool)
    try:
        kernels, library = _kernels_for(pool, dtype)
    except KernelsUnavailable as reason:
        if wanted == "on":
            raise UnsupportedModel(f"cpu_kernels is 'on', but {reason}") from reason
        log.info("CPU path: torch, for there are no kernels: %s", reason)
        return by_torch
    threads = torch.get_num_threads()
    attention, multiplied = CpuAttention(kernels, pool, threads), weights()
    conditions = _Conditions(
        form=FORM,
        processor=processor.description(),
        library=library,
        torch=str(torch.__version__),
        threads=threads,
        recorded=RECORDED if recorded else 1.0,
        page_size=decodes(1).page_size,
        keys=str(pool.k[0].dtype),
        weights=sorted({str(weight.dtype) for weight in multiplied}),
        shapes=shapes(multiplied),
        layers=[
            (a.heads, a.kv_heads, a.head_dim, a.v_head_dim, a.window, a.latent) for a in pool.layers
        ],
    )
    outcome = raced_once(
        conditions,
        partial(
            race,
            weights=multiplied,
            kernels=CpuOps(kernels, threads, {}),
            attention=(plain, attention),
            layers=pool.layers,
            decodes=decodes,
            recorded=recorded,
        ),
    )
    is_narrow = any(weight.dtype != dtype for weight in multiplied)  # for torch to widen each time
    kernels_win = wanted == "on" or is_narrow or outcome.kernels_win
    _log_choice(outcome, kernels_win=kernels_win, is_narrow=is_narrow)
    if not kernels_win:
        return by_torch
    ops = CpuOps(kernels, threads, outcome.linear_rows, narrow_rows=max(ROWS))
    return CpuPath(ops, attention)


def _log_choice(outcome: Outcome, *, kernels_win: bool, is_narrow: bool) -> None:
    chosen = "torch"
    if kernels_win:
        chosen = f"C++ kernels, for linear layers {_limits(outcome.linear_rows)}"
        if is_narrow:
            chosen += f", with weights of 16 bits up to {max(ROWS)} rows"
    disturbed = "; other programs disturbed it, so a later start races again"
    log.info(
        "CPU path: %s; a step's ms with torch and with kernels: %s%s",
        chosen,
        ", ".join(map(str, outcome.laps)),
        "" if outcome.undisturbed else disturbed,
    )


def _limits(linear_rows: dict[tuple[int, ...], int]) -> str:
    return (
        ", ".join(
            f"{width} x {inner} up to {rows} rows" for (width, inner), rows in linear_rows.items()
        )
        or "none"
    )


def _without_choice(plain: TorchAttention, pool: TokenToKVPool) -> CpuPath:
    """The path with integer weights: only the kernels multiply with them. They also compute
    attention if they can read the pool."""
    kernels, threads = Kernels(load_kernels()), torch.get_num_threads()
    ops = CpuOps(kernels, threads, {}, other_rows=max(ROWS))
    try:
        _readable(pool)
    except KernelsUnavailable as reason:
        log.info("CPU path: C++ kernels, with attention by torch: %s", reason)
        return CpuPath(ops, plain)
    log.info("CPU path: C++ kernels, since weights are integers")
    return CpuPath(ops, CpuAttention(kernels, pool, threads))


def _kernels_for(pool: TokenToKVPool, dtype: torch.dtype) -> tuple[Kernels, str]:
    """The kernels and the name of their library. Raises KernelsUnavailable."""
    if dtype != torch.float32:
        raise KernelsUnavailable(f"they are for float32, not {dtype}")
    _readable(pool)
    library = load_kernels()
    return Kernels(library), Path(library._name).name


def _readable(pool: TokenToKVPool) -> None:
    """Raises KernelsUnavailable."""
    kept = {tensor.dtype for tensor in (*pool.k, *pool.v)}
    if not kept <= {torch.float32, torch.bfloat16}:
        raise KernelsUnavailable(
            f"they read keys and values in float32 or bfloat16, not {', '.join(map(str, kept))}"
        )
