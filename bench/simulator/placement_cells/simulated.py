"""Simulates one policy in one cell, with the same plan as `pando sim`."""

import asyncio
from functools import cache
from itertools import islice
from pathlib import Path

from bench.simulator.placement_cells.cells import FILES, Cell
from bench.simulator.placement_cells.loads import Demand, demand
from bench.simulator.placement_cells.results import Measures, Play
from pando.sim import work
from pando.sim.plan import command_of, make_plan
from pando_sim.cost import load
from pando_sim.settings import SimSettings
from pando_sim.traces import open_trace

SMALL = Path("examples/traces/small.jsonl")


def file_of(cell: Cell, traces: Path | None) -> Path:
    if cell.trace not in FILES:
        return SMALL
    assert traces is not None, "cells of other traces are left out without their folder"
    return traces / FILES[cell.trace]


def run(cell: Cell, policy: str, share: float, traces: Path | None) -> Play:
    """At `share` of the cell's load."""
    path = file_of(cell, traces)
    settings = _settings(cell, policy, share, path)
    (task,) = make_plan(settings).tasks
    statistics = work.digested(task, asyncio.run(work.run(task))).statistics
    assert statistics.goodput is not None and statistics.hit_rate is not None
    assert statistics.ttft is not None and statistics.gap is not None
    assert statistics.load_spread is not None
    return Play(
        cell=cell.name,
        policy=policy,
        share=share,
        command=command_of(settings),
        requests=statistics.requests,
        lost=statistics.refused + statistics.failed,
        measures=Measures(
            goodput=statistics.goodput,
            hit_rate=statistics.hit_rate,
            ttft_p50_s=statistics.ttft.p50,
            ttft_p99_s=statistics.ttft.p99,
            gap_p99_s=statistics.gap.p99,
            load_spread=statistics.load_spread,
        ),
    )


def _settings(cell: Cell, policy: str, share: float, path: Path) -> SimSettings:
    speed = _demand(path, cell.take, cell.cost_model).speed(share * cell.load, cell.replicas)
    return SimSettings(
        trace=(str(path),),
        policy=(policy,),
        cost_model=cell.cost_model,
        replicas=cell.replicas,
        capacity_tokens=cell.capacity_tokens,
        routers=cell.routers,
        take=cell.take,
        repeat=cell.repeat,
        speed=round(speed, 2),
        fault=(f"slow:replica-0:{cell.slow:g}@0",) if cell.slow != 1 else (),
        csv=False,
    )


@cache
def _demand(path: Path, take: int | None, cost_model: str) -> Demand:
    return demand(islice(open_trace(path), take), load(cost_model))
