"""Which code runs the model's steps on a CPU: the C++ kernels or torch, decided by a short race.

Both run decode steps of a few sizes on the loaded model, in turns. Nothing else can tell: it
depends on the processor, on torch's build, on the model's shapes, and on who else uses the cores.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from pando_worker.attention.backend import AttentionBackend
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.batch import ForwardBatch
from pando_worker.cpu.attention import CpuAttention
from pando_worker.cpu.build import KernelsUnavailable
from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.library import load_kernels
from pando_worker.cpu.ops import CpuOps
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.ops import ChosenOps, Ops, TorchOps

log = logging.getLogger("pando.worker.cpu")

ROWS = (1, 4, 16, 64)  # of the steps that are raced
ROUNDS = 5  # the fastest counts: noise only adds
FEW_ROUNDS = 1  # where a step takes long, it says enough
LARGE_BYTES = 2**30  # weights from which it does
# Linear layers in the kernel may lose by so much where steps are recorded: one without torch's own
# becomes a single call.
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
    quantized: bool,
    recorded: bool,
    run: Run,
    decodes: Callable[[int], ForwardBatch],
) -> AttentionBackend:
    """The attention backend to use; `ops` is set to what goes with it.

    Every rank of a group runs equally many steps here, since each waits for the others in them.

    Args:
        wanted: `auto` races; `on` insists on the kernels and races only for the size up to which
            linear layers use them; `off` keeps torch.
        quantized: some weights are integers: then there is no choice
        recorded: decode steps will be, which the race does not show
        run: runs a batch and computes its logits
        decodes: a decode step of so many rows that may be run at any time

    Raises:
        UnsupportedModel: the kernels are wanted `on`, and there are none or not for this dtype.
    """
    if wanted == "off":
        return plain
    if quantized:
        return _without_choice(ops, plain, pool)
    try:
        kernels = _kernels_for(pool, dtype)
    except KernelsUnavailable as reason:
        if wanted == "on":
            raise UnsupportedModel(f"cpu_kernels is 'on', but {reason}") from reason
        log.info("CPU path: torch, for there are no kernels: %s", reason)
        return plain
    threads = torch.get_num_threads()
    fast = CpuAttention(kernels, pool, threads)

    def step(chosen: Ops, attention: AttentionBackend, batch: ForwardBatch) -> None:
        ops.use(chosen)
        run(attention, batch)

    rounds = FEW_ROUNDS if weight_bytes >= LARGE_BYTES else ROUNDS
    laps = []
    for rows in ROWS:
        batch = decodes(rows)
        ways = (
            partial(step, TorchOps(), plain, batch),
            partial(step, CpuOps(kernels, threads, linear_rows=rows), fast, batch),
            partial(step, CpuOps(kernels, threads, linear_rows=0), fast, batch),
        )
        laps.append(Lap(rows, *fastest(ways, rounds)))
    kernels_win = wanted == "on" or sum(lap.gain for lap in laps) > len(laps)
    handicap = RECORDED if recorded else 1.0
    linear_rows = max((lap.rows for lap in laps if lap.linear_cost <= handicap), default=0)
    ops.use(CpuOps(kernels, threads, linear_rows) if kernels_win else TorchOps())
    log.info(
        "CPU path: %s; a step's ms with torch and with kernels: %s",
        f"C++ kernels, for linear layers up to {linear_rows} rows" if kernels_win else "torch",
        ", ".join(map(str, laps)),
    )
    return fast if kernels_win else plain


@dataclass(frozen=True, slots=True)
class Lap:
    """Seconds of a step of so many rows."""

    rows: int
    torch_s: float
    all_kernels_s: float
    without_linear_s: float  # with all kernels but that of linear layers

    @property
    def kernels_s(self) -> float:
        return min(self.all_kernels_s, self.without_linear_s)

    @property
    def gain(self) -> float:
        """A ratio, so that large batches do not outvote small ones."""
        return self.torch_s / self.kernels_s

    @property
    def linear_cost(self) -> float:
        """Of linear layers in the kernel, as a ratio."""
        return self.all_kernels_s / self.without_linear_s

    def __str__(self) -> str:
        return f"{self.rows} rows {1e3 * self.torch_s:.2f} and {1e3 * self.kernels_s:.2f}"


def fastest(contestants: Sequence[Callable[[], None]], rounds: int) -> list[float]:
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


def _without_choice(ops: ChosenOps, plain: TorchAttention, pool: TokenToKVPool) -> AttentionBackend:
    """Only the kernels multiply with integers; attention is theirs, too, where they can read the
    pool."""
    kernels, threads = Kernels(load_kernels()), torch.get_num_threads()
    ops.use(CpuOps(kernels, threads, linear_rows=max(ROWS)))
    try:
        _readable(pool)
    except KernelsUnavailable as reason:
        log.info("CPU path: C++ kernels, with attention by torch: %s", reason)
        return plain
    log.info("CPU path: C++ kernels, since weights are integers")
    return CpuAttention(kernels, pool, threads)


def _kernels_for(pool: TokenToKVPool, dtype: torch.dtype) -> Kernels:
    if dtype != torch.float32:
        raise KernelsUnavailable(f"they are for float32, not {dtype}")
    _readable(pool)
    return Kernels(load_kernels())


def _readable(pool: TokenToKVPool) -> None:
    """Raises KernelsUnavailable."""
    kept = {tensor.dtype for tensor in (*pool.k, *pool.v)}
    if not kept <= {torch.float32, torch.bfloat16}:
        raise KernelsUnavailable(
            f"they read keys and values in float32 or bfloat16, not {', '.join(map(str, kept))}"
        )
