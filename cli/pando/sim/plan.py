"""Plans the runs from the settings; a `Task` is all that a process needs to simulate one run.

Imports nothing that only a run needs, so that mistakes are reported before the simulated fleet
loads.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pando.sim import manifest
from pando.sim.errors import SimPlanError
from pando.sim.faults import FaultError, Stage, check_faults, parse_fault
from pando.sim.fleet import by_rule, fleet_of
from pando.sim.manifest import ManifestError
from pando.sim.trace import Extent, extent_of, read_trace, shape_of
from pando_sim.cost import CostModel, CostModelError, load
from pando_sim.policies import POLICIES
from pando_sim.request import Request
from pando_sim.scaling import SCALERS
from pando_sim.session import Crowd
from pando_sim.session_rules import SESSION_RULES
from pando_sim.settings import ALL, NO_SCALING, ReplaySettings, SimSettings
from pando_sim.spec import FleetSpec
from pando_sim.traces import Shape, Trace, TraceError, shaped
from pando_worker.cores import available_cores

if TYPE_CHECKING:
    from pando_operator.resource.pool import WorkerPool

OPERATOR = "pando"  # of the scalings
NOT_REPEATED = ("trace", "output", "jobs", "csv", "resume")
"""Settings that change no result, and the trace, which has no flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run; picklable."""

    spec: FleetSpec
    trace: Trace
    shape: Shape
    sessions: int | None  # at once; None: the trace has requests with times
    until_s: float  # for sessions: when nothing more is sent
    pool: "WorkerPool"
    faults: tuple[str, ...]
    csv: Path | None  # the folder for the run's CSV files

    @property
    def requests(self) -> Iterator[Request] | Crowd:
        if self.sessions is None:
            return shaped(self.trace, self.shape)
        return Crowd(
            sessions=self.trace.sessions_without_end, at_once=self.sessions, until_s=self.until_s
        )

    @property
    def name(self) -> str:
        rule = f".{self.spec.session_rule}" if self.spec.session_rule else ""
        return f"{self.spec.policy}.{self.spec.scaling}{rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimPlan:
    tasks: list[Task]
    pool: "WorkerPool"
    cost: CostModel
    trace: Trace
    extent: Extent


def make_plan(settings: SimSettings, read: Callable[[Request], None] = lambda _: None) -> SimPlan:
    """Reads the whole trace once, so that errors in it show before the first run.

    `read` is called with each request, as it is played. Raises SimPlanError.
    """
    try:
        for text in settings.fault:
            parse_fault(text)
        cost = load(settings.cost_model)
        trace = read_trace(settings)
        pool = manifest.read(settings.pool)
        shape = shape_of(settings)
        extent = extent_of(settings, trace, shape, read)
    except (ManifestError, CostModelError, TraceError, FaultError) as error:
        raise SimPlanError(" ".join(str(error).split())) from None
    tasks = [
        Task(
            spec=by_rule(fleet_of(settings, pool, cost, extent, policy, scaling), rule),
            trace=trace,
            shape=shape,
            sessions=settings.sessions,
            until_s=extent.last_s,
            pool=pool,
            faults=settings.fault,
            csv=settings.output if settings.csv else None,
        )
        for policy in _chosen(settings.policy, _policies(settings))
        for scaling in _scalings(settings, pool)
        for rule in _chosen(settings.session_rule, list(SESSION_RULES)) or ("",)
    ]
    _check_faults(settings, tasks, extent)
    return SimPlan(tasks=tasks, pool=pool, cost=cost, trace=trace, extent=extent)


def _policies(settings: SimSettings) -> list[str]:
    """Those for sessions too, where sessions are played."""
    has_sessions = settings.sessions is not None
    return [name for name, one in POLICIES.items() if has_sessions or not one.is_for_sessions]


def command_of(settings: ReplaySettings, command: str = "sim") -> str:
    """A command line that repeats these runs: it has all settings that differ from the default."""
    words = ["pando", command, *settings.trace]
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        flag = "--" + name.replace("_", "-")
        if name in NOT_REPEATED or value == field.default:
            continue
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            for one in value if isinstance(value, tuple) else (value,):
                words += [flag, str(one)]
    return shlex.join(words)


def jobs(settings: ReplaySettings) -> int:
    """Runs at a time."""
    return settings.jobs or available_cores()


def _check_faults(settings: SimSettings, tasks: Sequence[Task], extent: Extent) -> None:
    stage = Stage(
        replicas=max(task.spec.replicas for task in tasks),
        is_scaled=any(task.spec.scaling != NO_SCALING for task in tasks),
        routers=settings.routers,
        last_s=extent.last_s,
    )
    try:
        check_faults(settings.fault, stage)
    except FaultError as error:
        raise SimPlanError(str(error)) from None


def _scalings(settings: SimSettings, pool: "WorkerPool") -> list[str]:
    from pando_operator.resource.scaling import Mode

    scaling = pool.spec.scaling
    if settings.replicas is not None:
        return [NO_SCALING]
    if not settings.scaling:
        return [OPERATOR if scaling.mode is Mode.AUTO else NO_SCALING]
    chosen = _chosen(settings.scaling, list(SCALERS))
    if set(chosen) != {NO_SCALING} and scaling.max_replicas is None:
        raise SimPlanError("--scaling needs spec.scaling.maxReplicas in the --pool manifest")
    return chosen


def _chosen(names: Sequence[str], every: Sequence[str]) -> list[str]:
    """The chosen names, each once, in order; `all` means all of `every`."""
    return list(dict.fromkeys(one for name in names for one in (every if name == ALL else (name,))))
