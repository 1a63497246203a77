"""Races the C++ kernels against torch on this machine.

Only a measurement shows which is faster: it depends on the processor, on torch's build and on the
model's shapes. The race compares the products of a decode step, by the shapes of their weights, and
attention with its norms, each for a few numbers of rows, by turns. It uses only this rank's own
weights and pages, so no rank waits for another, and it ends after about a second; beside other
programs, for which its threads have to wait, after three.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.batch import ForwardBatch
from pando_worker.cpu.ops import CpuOps
from pando_worker.models.ops import Ops, TorchOps
from pando_worker.runner.cpu.waits import waited_s

FORM = 2  # of the race: outcomes of another form are not used any more
SECONDS = 1.0  # of the whole race
SPARE = 2.0  # times its share of these are added to a contest that other programs disturb, at most
# A round is disturbed if threads waited for cores longer than this part of it, and than this many
# seconds: waking takes a little on a quiet machine, too.
DISTURBED, WAKING_S = 0.1, 1e-4
ROWS = (1, 4, 16, 64)  # of the raced steps
ROUNDS = 8  # undisturbed ones, at most; the fastest counts, as noise only adds time
# Number of weights in a raced product: more than a core's cache holds, so that they come from
# memory as in a step, but few enough that one product takes milliseconds.
SLICE = 2**22
LAYERS = 4  # layers whose attention is raced
# If steps are recorded, one with all products in the kernels becomes a single call, without torch's
# operators. So it may be slower by this factor than one with each product by the faster code. Such
# a mixed step took 1.2 times as long at 32 rows of a small model, where it was estimated to be
# faster.
RECORDED = 1.2

Contestant = Callable[[], object]


class Shape(msgspec.Struct, frozen=True):
    """The shape [width, inner] of the weights of `count` products in a step."""

    width: int
    inner: int
    count: int


class Times(NamedTuple):
    """Seconds of a step's attention, or of all its products of a shape."""

    torch_s: float
    kernel_s: float


class Limit(msgspec.Struct, frozen=True):
    """The most rows for which a product with a weight [width, inner] runs in the kernel."""

    width: int
    inner: int
    rows: int


class Lap(msgspec.Struct, frozen=True):
    """Estimated seconds of a step with this many rows: its products and its attention."""

    rows: int
    torch_s: float
    kernels_s: float  # as it would run

    def __str__(self) -> str:
        return f"{self.rows} rows {1e3 * self.torch_s:.2f} and {1e3 * self.kernels_s:.2f}"


class Outcome(msgspec.Struct, frozen=True):
    """
    Attributes:
        undisturbed: whether all that was compared ran at least once without waiting for cores
    """

    laps: list[Lap]
    limits: list[Limit]
    undisturbed: bool

    @property
    def kernels_win(self) -> bool:
        """Compares ratios, so that large batches do not outweigh small ones."""
        return sum(lap.torch_s / lap.kernels_s for lap in self.laps) > len(self.laps)

    @property
    def linear_rows(self) -> dict[tuple[int, ...], int]:
        """For `CpuOps`."""
        return {(limit.width, limit.inner): limit.rows for limit in self.limits}


class NotedOps(TorchOps):
    """Records the weight of each product that it computes."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        self.weights.append(weight)
        return super().linear(x, weight, bias)


def shapes(weights: Sequence[Tensor]) -> list[Shape]:
    """The distinct shapes of a step's products, in the order of their first occurrence."""
    kinds = [(weight.shape[0], weight.shape[1]) for weight in weights]
    return [Shape(*kind, kinds.count(kind)) for kind in dict.fromkeys(kinds)]


def in_kernels(
    products: Mapping[Shape, Times], attention_s: float, recorded: bool
) -> Collection[Shape]:
    """The products for which a step uses the kernels: all of them, if it is recorded and that costs
    little (`RECORDED`), otherwise those that the kernels compute faster.

    Args:
        attention_s: seconds of the step's attention in the kernels
    """
    alone = attention_s + sum(times.kernel_s for times in products.values())
    mixed = attention_s + sum(min(times) for times in products.values())
    if recorded and alone <= RECORDED * mixed:
        return products
    return [shape for shape, times in products.items() if times.kernel_s <= times.torch_s]


@torch.inference_mode()
def race(
    *,
    weights: Sequence[Tensor],
    kernels: CpuOps,
    attention: tuple[AttentionBackend, AttentionBackend],
    layers: Sequence[AttentionLayer],
    decodes: Callable[[int], ForwardBatch],
    recorded: bool,
) -> Outcome:
    """
    Args:
        weights: of a step's products, float32; empty if the model computes them differently
        attention: with torch and with kernels
        layers: all layers of the model
        decodes: makes a decode step with this many rows, which may be run at any time
        recorded: whether decode steps will be recorded, which the race does not show
    """
    plain = TorchOps()
    clock = _Clock(len(ROWS) * (len(shapes(weights)) + 1))
    slices = {shape: cycle(_slices(weights, shape)) for shape in shapes(weights)}
    limits = dict.fromkeys(slices, 0)
    laps: list[Lap] = []
    for rows in ROWS:
        if laps and clock.is_over:
            break
        fastest = clock.fastest(
            [
                partial(_attend, plain, attention[0], decodes(rows), layers[:LAYERS]),
                partial(_attend, kernels, attention[1], decodes(rows), layers[:LAYERS]),
            ]
        )
        scale = len(layers) / len(layers[:LAYERS])
        attended = Times(*(scale * seconds for seconds in fastest))
        products: dict[Shape, Times] = {}
        for shape, parts in slices.items():
            x = torch.ones(rows, shape.inner)
            share = shape.width * shape.count / len(next(parts))
            fastest = clock.fastest(
                [partial(_multiply, way, x, parts) for way in (plain.linear, kernels.product)]
            )
            products[shape] = Times(*(share * seconds for seconds in fastest))
        chosen = in_kernels(products, attended.kernel_s, recorded)
        limits |= dict.fromkeys(chosen, rows)
        torch_s = attended.torch_s + sum(times.torch_s for times in products.values())
        as_run = (t.kernel_s if shape in chosen else t.torch_s for shape, t in products.items())
        laps.append(Lap(rows, torch_s, attended.kernel_s + sum(as_run)))
    found = [Limit(s.width, s.inner, rows) for s, rows in limits.items()]
    return Outcome(laps, found, clock.undisturbed)


class _Clock:
    """Divides the race's time among this many contests.

    Attributes:
        undisturbed: whether each contest so far had a round without waiting for cores
    """

    def __init__(self, contests: int) -> None:
        self._left = contests
        self._until = time.perf_counter() + SECONDS
        self.undisturbed = True

    @property
    def is_over(self) -> bool:
        return time.perf_counter() >= self._until

    def fastest(self, contestants: Sequence[Contestant]) -> list[float]:
        """Seconds of each contestant's fastest run. They run by turns, at least once each. Rounds
        that were disturbed count only if all were."""
        now = time.perf_counter()
        share = max(0.0, self._until - now) / max(1, self._left)
        self._left -= 1
        calm: list[list[float]] = []
        disturbed: list[list[float]] = []
        lost = 0.0  # seconds of disturbed rounds, which the race gets back
        while len(calm) < ROUNDS:
            began, waited = time.perf_counter(), waited_s()
            times = [_timed(contestant) for contestant in contestants]
            if waited_s() - waited <= max(WAKING_S, DISTURBED * sum(times)):
                calm.append(times)
            else:
                disturbed.append(times)
                lost = min(SPARE * share, lost + time.perf_counter() - began)
            if time.perf_counter() >= now + share + lost:
                break
        self._until += lost
        self.undisturbed = self.undisturbed and bool(calm)
        return [min(runs) for runs in zip(*(calm or disturbed), strict=True)]


def _timed(contestant: Contestant) -> float:
    started = time.perf_counter()
    contestant()
    return time.perf_counter() - started


def _slices(weights: Sequence[Tensor], shape: Shape) -> list[Tensor]:
    """Equal parts, [rows, inner], of all weights of this shape. Each run uses the next part, so
    that it comes from memory."""
    height = min(shape.width, max(1, SLICE // shape.inner))
    alike = [weight for weight in weights if tuple(weight.shape) == (shape.width, shape.inner)]
    starts = range(0, shape.width - height + 1, height)
    return [weight[start : start + height] for start in starts for weight in alike]


def _multiply(
    way: Callable[[Tensor, Tensor], Tensor], x: Tensor, parts: Iterator[Tensor]
) -> Tensor:
    return way(x, next(parts))


def _attend(
    ops: Ops, backend: AttentionBackend, batch: ForwardBatch, layers: Sequence[AttentionLayer]
) -> None:
    """Run these layers without their products, and the step's plan."""
    backend.plan(batch)
    rows = len(batch.input_ids)
    for layer in layers:
        q = torch.ones(rows, layer.heads, layer.q_dim)
        k = torch.ones(rows, layer.kv_heads, layer.head_dim)
        v = torch.ones(rows, layer.kv_heads, layer.v_head_dim)
        out = backend.forward(q, k, v, layer).flatten(1)
        weight = out.new_ones(out.shape[1])
        for _ in range(2):
            ops.add_rms_norm(out, torch.ones_like(out), weight, 1e-6)
