"""The growth of a long simulation's costs: python -m bench.simulator.sim_growth TRACE

The trace is repeated until there are enough requests, as fast for its replicas as it is for eight.
Each row of the table is printed as soon as it is known: CPU seconds and memory, of the simulation
and of its Valkey, since the run began. No reports are written.
"""

import asyncio
import os
import time
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import click
import psutil

from pando_sim.cost import load
from pando_sim.fleet.simulate import simulate
from pando_sim.policies import POLICIES
from pando_sim.records import Outcome, Run
from pando_sim.spec import FleetSpec, WorkerSpec
from pando_sim.traces import Shape, open_trace, shaped

COST_MODEL = "h100-llama-3.1-8b-fp8"
AS_FAST_FOR = 8  # replicas
MIB = 2**20
HEAD = (
    "| requests ended | wall, s | Python, CPU s | Valkey, CPU s | Python, MiB | Valkey, MiB |"
    " load |\n|---|---|---|---|---|---|---|"
)


@dataclass(slots=True)
class Growth:
    """Prints a row whenever another `every` requests have ended."""

    every: int
    began_s: float = field(default_factory=time.perf_counter)
    told: int = 0
    python: psutil.Process = field(default_factory=psutil.Process)

    def look(self, ended: int, _: float) -> None:
        """Called by `simulate`, with the virtual time."""
        if ended >= self.told + self.every:
            self.told = ended
            click.echo(self._row(ended))

    def _row(self, ended: int) -> str:
        (valkey,) = self.python.children()
        both = (self.python, valkey)
        cells = (
            f"{ended:,}",
            f"{time.perf_counter() - self.began_s:.0f}",
            *(f"{one.cpu_times().user + one.cpu_times().system:.0f}" for one in both),
            *(f"{one.memory_info().rss / MIB:.0f}" for one in both),
            f"{os.getloadavg()[0]:.1f}",
        )
        return "| " + " | ".join(cells) + " |"


@click.command()
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replicas", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--requests", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--capacity-tokens", type=click.IntRange(1), default=131_072, show_default=True)
@click.option("--policy", type=click.Choice(list(POLICIES)), default="cache_aware")
@click.option("--rows", type=click.IntRange(1), default=10, show_default=True)
def main(
    trace: Path, replicas: int, requests: int, capacity_tokens: int, policy: str, rows: int
) -> None:
    """Runs this many requests of TRACE, and prints the costs."""
    spec = FleetSpec(
        worker=WorkerSpec(cost_model=COST_MODEL, capacity_tokens=capacity_tokens),
        replicas=replicas,
        policy=policy,
    )
    click.echo(HEAD)
    run = asyncio.run(_run(spec, trace, requests, Growth(every=-(-requests // rows))))
    lost = sum(one.outcome is not Outcome.FINISHED for one in run.served)
    click.echo(f"\n{len(run.served):,} requests in {run.wall_s:.0f} s, {lost} not finished")


async def _run(spec: FleetSpec, trace: Path, requests: int, growth: Growth) -> Run:
    source = open_trace(trace)
    length = sum(1 for _ in source)
    shape = Shape(repeat=-(-requests // length), speed=spec.replicas / AS_FAST_FOR)
    return await simulate(
        spec,
        islice(shaped(source, shape), requests),
        cost=load(COST_MODEL),
        policy=POLICIES[spec.policy].factory(spec),
        progress=growth.look,
    )


if __name__ == "__main__":
    main()
