"""The products of a step by the types of their weights: float32, bfloat16 and int8, in one process.

Run: python -m bench.engine.cpu_products
Ways take turns, each on the next of several weights, and the fastest run counts: noise only adds.
The shapes are SmolLM2-135M's. Results: docs/models.md.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in a worker; before torch reads it

import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import NamedTuple

import click
import torch
from torch import Tensor
from torch.nn import functional

from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.library import load_kernels
from pando_worker.cpu.ops import CpuOps
from pando_worker.models.grouped import Groups, shapes
from pando_worker.models.loading.schemes import int8
from pando_worker.server.machine import machine


class Shape(NamedTuple):
    """Of weights [width, inner], which a step multiplies with `times` times."""

    width: int
    inner: int
    times: int


STEP = (
    Shape(960, 576, 30),
    Shape(576, 576, 30),
    Shape(3072, 576, 30),
    Shape(576, 1536, 30),
    Shape(49152, 576, 1),
)
ROWS = (1, 8, 32, 64, 256)
WEIGHTS = 8  # of a shape, as far as a step has so many: more than a core caches
ROUNDS, MIN_ROUNDS = 60, 12
KERNEL_ROWS = 64  # float32: up to so many in the kernel, above in torch

Way = Callable[[Tensor], Tensor]


@click.command(help=__doc__)
@click.option("--threads", default=2, show_default=True)
def main(threads: int) -> None:
    torch.set_num_threads(threads)
    kernels = CpuOps(Kernels(load_kernels()), threads, {}, other_rows=KERNEL_ROWS)
    totals: dict[int, dict[str, float]] = {rows: {} for rows in ROWS}
    with torch.inference_mode():
        for shape in STEP:
            ways = _ways(shape, kernels)
            for rows in ROWS:
                x = torch.randn(rows, shape.inner)
                for name, seconds in _fastest(ways, x).items():
                    total = totals[rows].get(name, 0.0)
                    totals[rows][name] = total + seconds * shape.times
    click.echo("| rows | " + " | ".join(totals[1]) + " |\n" + "|---" * (1 + len(totals[1])) + "|")
    for rows, found in totals.items():
        cells = [f"{1e3 * seconds:.1f}" for seconds in found.values()]
        click.echo(f"| {rows} | {' | '.join(cells)} |")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    click.echo(f"\nms of a step's products; {machine('cpu', 1)}, {threads} threads; load {load}")


def _ways(shape: Shape, kernels: CpuOps) -> Mapping[str, list[Way]]:
    """For each type, a product with each of a few weights."""
    count = min(WEIGHTS, shape.times)
    numbers = [torch.randn(shape.width, shape.inner) for _ in range(count)]
    halves = [weight.bfloat16() for weight in numbers]
    packed = [torch.ops.mkldnn._reorder_linear_weight(weight) for weight in halves]
    return {
        "float32": [partial(kernels.linear, weight=weight) for weight in numbers],
        "bfloat16": [partial(_by_torch, weight=weight) for weight in halves],
        "bfloat16, packed": [partial(_by_onednn, weight=weight) for weight in packed],
        "int8": [partial(kernels.grouped_linear, weight=_bytes(weight)) for weight in numbers],
    }


def _by_torch(x: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(x.bfloat16(), weight).float()


def _by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    """With a weight in the order that oneDNN chose for it, which only oneDNN reads."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x.bfloat16(), weight, None, "none", [], "")
    return product.float()


def _bytes(weight: Tensor) -> Groups:
    rows, columns = weight.shape
    values, numbers = shapes(int8.GROUPING, rows, columns)
    memory = torch.empty(values, dtype=torch.uint8)
    scales = torch.empty(numbers, dtype=int8.GROUPING.numbers)
    made = Groups(int8.GROUPING, rows, columns, memory, scales, None)
    made.put(0, int8.to_bytes(weight))
    return made


def _fastest(ways: Mapping[str, list[Way]], x: Tensor) -> dict[str, float]:
    """Seconds of each way's fastest run."""
    best = dict.fromkeys(ways, float("inf"))
    turns = {name: cycle(products) for name, products in ways.items()}
    began = time.perf_counter()
    for done in range(ROUNDS):
        for name, products in turns.items():
            product = next(products)
            started = time.perf_counter()
            product(x)
            best[name] = min(best[name], time.perf_counter() - started)
        if done >= MIN_ROUNDS and time.perf_counter() - began > 1.5:
            break
    return best


if __name__ == "__main__":
    main()
