"""A search by `pando tune`, and runs of other candidates on the same parts of its trace."""

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import yaml

from bench.simulator.scaling_days.loads import BURST_FACTOR, BURST_S, HOURS_A_BURST, TROUGH, Load
from pando.sim.manifest import NONE
from pando.tune.plan import TunePlan, make_tune_plan
from pando.tune.settings import TuneSettings
from pando_sim.tuning.findings import Findings
from pando_sim.tuning.goal import Goal
from pando_sim.tuning.knobs import Value
from pando_sim.tuning.parts import Stage
from pando_sim.tuning.score import Score
from pando_sim.tuning.watch import NO_BOUNDS, Bounds, run

GOAL = Goal(ttft_s=2.0, gap_s=0.05)
MOST_REPLICAS = 8
PRESSURE = "scaling.target.pressure"


@dataclass(frozen=True, slots=True)
class Case:
    """A load, and how it is searched; picklable."""

    load: Load
    played: dict[str, object]  # options that say how
    trials: int
    excerpt: int
    folder: Path
    only: tuple[str, ...] = ()  # fields to search; none: all
    as_today: bool = False  # no more misses than the defaults, instead of 1 %

    @property
    def arguments(self) -> list[str]:
        load = self.load
        options = {
            "pool": self.folder / "manifest.yaml",
            "output": self.folder,
            "cost-model": load.cost_model,
            "max-replica-requests": load.most_requests,
            "seed": load.day,
            "ttft-p99": GOAL.ttft_s,
            "gap-p99": GOAL.gap_s,
            "trials": self.trials,
            "excerpt": self.excerpt,
            **self.played,
        }
        words = [str(load.trace), "--anyway"]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        return words

    def write_manifest(self) -> None:
        load, scaling = self.load, {"minReplicas": 1, "maxReplicas": MOST_REPLICAS}
        engine = {
            "maxTotalTokens": load.capacity_tokens,
            "chunkedPrefillSize": load.chunk_tokens,
            "radixCache": load.engine.get("radix_cache", True),
        }
        spec = NONE["spec"] | {"replicas": 1, "engine": engine, "scaling": scaling}
        path = self.folder / "manifest.yaml"
        path.write_text(yaml.safe_dump(NONE | {"spec": spec}))


def through_a_day(hours: float) -> dict[str, object]:
    """The options of the day of `scaling_days`."""
    return {
        "day-hours": hours,
        "day-trough": TROUGH,
        "day-bursts": round(hours / HOURS_A_BURST),
        "day-burst-factor": BURST_FACTOR,
        "day-burst-seconds": BURST_S,
    }


def searched(case: Case) -> tuple[Findings, tuple[float, float] | None]:
    """What the command finds, its seconds and the CPU seconds of all its processes; those of a
    search that was interrupted, and goes on, are not known. Raises CalledProcessError."""
    case.folder.mkdir(parents=True, exist_ok=True)
    case.write_manifest()
    words = [sys.executable, "-m", "pando", "tune", *case.arguments]
    for field in case.only:
        words += ["--only", field]
    if case.as_today:
        words.append("--as-good-as-today")
    resumes = (case.folder / "runs.jsonl").exists()
    if resumes:
        words.append("--resume")
    before, began = os.times(), time.monotonic()
    subprocess.run(words, check=True)
    after, seconds = os.times(), time.monotonic() - began
    cpu_s = after.children_user + after.children_system
    cpu_s -= before.children_user + before.children_system
    found = (case.folder / "results.json").read_bytes()
    return msgspec.json.decode(found, type=Findings), None if resumes else (seconds, cpu_s)


def played(case: Case, values: dict[str, Value], stage: Stage, bounds: Bounds = NO_BOUNDS) -> Score:
    """The defaults with these values, on a part of the case's trace."""
    plan = _plan(tuple(case.arguments))
    candidate = plan.space.candidate(plan.space.defaults | values)
    part = plan.parts.of(stage)
    return asyncio.run(run(plan.fleet(candidate), candidate.pool, part, plan.goal, bounds=bounds))


@cache
def _plan(arguments: tuple[str, ...]) -> TunePlan:
    trace, _, *options = arguments
    pairs = zip(options[::2], options[1::2], strict=True)
    fields = {name.removeprefix("--").replace("-", "_"): value for name, value in pairs}
    return make_tune_plan(
        TuneSettings.model_validate({"trace": (trace,), "anyway": True, **fields})
    )
