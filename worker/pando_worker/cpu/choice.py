"""Which code runs the model's steps on a CPU: the C++ kernels or torch, decided by a short race.

Both run decode steps of a few sizes on the loaded model, in turns. Nothing else can tell: it
depends on the processor, on torch's build, on the model's shapes, and on who else uses the cores.
"""

import logging
import time
from collections.abc import Callable
from typing import Literal

import torch

from pando_worker.attention.backend import AttentionBackend
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.cpu.attention import CpuAttention
from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.library import KernelsUnavailable, load_kernels
from pando_worker.cpu.ops import CpuOps
from pando_worker.memory.kv_pool import TokenToKVPool
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.ops import ChosenOps, TorchOps
from pando_worker.runner.batch import ForwardBatch

log = logging.getLogger("pando.worker.cpu")

ROWS = (1, 4, 16, 64)  # of the steps that are raced
ROUNDS = 5  # the fastest counts: noise only adds
FEW_ROUNDS = 1  # where a step takes long, it says enough
LARGE_BYTES = 2**30  # weights from which it does
# Linear layers in the kernel may lose by so much: a step without torch's own can be recorded as a
# single call, which the race does not show.
RECORDED = 1.1

Run = Callable[[AttentionBackend, ForwardBatch], object]


def choose_cpu_path(
    wanted: Literal["auto", "on", "off"],
    *,
    ops: ChosenOps,
    plain: TorchAttention,
    pool: TokenToKVPool,
    dtype: torch.dtype,
    weight_bytes: int,
    run: Run,
    decodes: Callable[[int], ForwardBatch],
) -> AttentionBackend:
    """The attention backend to use; `ops` is set to what goes with it.

    Every rank of a group runs equally many steps here, since each waits for the others in them.

    Args:
        wanted: `auto` races; `on` insists on the kernels and races only for the size up to which
            linear layers use them; `off` keeps torch.
        run: runs a batch and computes its logits
        decodes: a decode step of so many rows that may be run at any time

    Raises:
        UnsupportedModel: the kernels are wanted `on`, and there are none or not for this dtype.
    """
    if wanted == "off":
        return plain
    try:
        kernels = _kernels_for(pool, dtype)
    except KernelsUnavailable as reason:
        if wanted == "on":
            raise UnsupportedModel(f"cpu_kernels is 'on', but {reason}") from reason
        log.info("CPU path: torch, for there are no kernels: %s", reason)
        return plain
    threads = torch.get_num_threads()
    fast_ops, fast = (
        CpuOps(kernels, threads, linear_rows=0),
        CpuAttention(kernels, pool, plain, threads),
    )
    rounds = FEW_ROUNDS if weight_bytes >= LARGE_BYTES else ROUNDS
    torch_s: list[float] = []
    kernel_s: list[float] = []
    linear_rows = 0
    for rows in ROWS:
        batch = decodes(rows)

        def with_torch() -> None:
            ops.use(TorchOps())
            run(plain, batch)  # noqa: B023, called in this turn of the loop

        def with_kernels() -> None:
            ops.use(fast_ops)
            fast_ops.linear_rows = rows  # noqa: B023
            run(fast, batch)  # noqa: B023

        def with_kernels_but_linear() -> None:
            ops.use(fast_ops)
            fast_ops.linear_rows = 0
            run(fast, batch)  # noqa: B023

        seconds = fastest([with_torch, with_kernels, with_kernels_but_linear], rounds)
        torch_s.append(seconds[0])
        kernel_s.append(min(seconds[1:]))
        if seconds[1] <= RECORDED * seconds[2]:
            linear_rows = rows
    fast_ops.linear_rows = linear_rows
    told = ", ".join(
        f"{rows} rows {1e3 * a:.2f} and {1e3 * b:.2f}"
        for rows, a, b in zip(ROWS, torch_s, kernel_s, strict=True)
    )
    # By ratios, so that large batches do not outvote small ones.
    gain = sum(a / b for a, b in zip(torch_s, kernel_s, strict=True)) / len(ROWS)
    if wanted == "auto" and gain <= 1:
        ops.use(TorchOps())
        log.info("CPU path: torch; a step's ms with torch and with kernels: %s", told)
        return plain
    ops.use(fast_ops)
    log.info(
        "CPU path: C++ kernels, for linear layers up to %d rows; a step's ms with torch and with"
        " kernels: %s",
        linear_rows,
        told,
    )
    return fast


def fastest(contestants: list[Callable[[], None]], rounds: int) -> list[float]:
    """Seconds of each one's fastest run; they run in turns, after a first run that warms up."""
    best = [float("inf")] * len(contestants)
    for contestant in contestants:
        contestant()
    for _ in range(rounds):
        for index, contestant in enumerate(contestants):
            started = time.perf_counter()
            contestant()
            best[index] = min(best[index], time.perf_counter() - started)
    return best


def _kernels_for(pool: TokenToKVPool, dtype: torch.dtype) -> Kernels:
    kinds = {dtype, *(tensor.dtype for tensor in (*pool.k, *pool.v))}
    if kinds != {torch.float32}:
        raise KernelsUnavailable(f"they are for float32, not {', '.join(map(str, kinds))}")
    return Kernels(load_kernels())
