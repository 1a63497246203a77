"""Plans the runs from the settings; a `Task` is all that a process needs to simulate one run.

Imports nothing that only a run needs, so that mistakes are reported before the simulated
fleet loads.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import ValidationError

from pando.sim import manifest
from pando.sim.faults import FaultError, Stage, check_faults, parse_fault
from pando.sim.manifest import SCHEDULING, ManifestError
from pando_fleet.images.rule import KINDS, ImageRule
from pando_sim.cost import CostModel, CostModelError, load
from pando_sim.day_clock import SINCE_MONDAY, DayClock
from pando_sim.policies import POLICIES
from pando_sim.request import Request
from pando_sim.scaling import SCALERS
from pando_sim.session import Crowd
from pando_sim.session_rules import SESSION_RULES
from pando_sim.settings import ALL, NO_SCALING, ReplaySettings, SimSettings
from pando_sim.spec import (
    CONTEXT_LENGTH,
    START_S,
    WORKER,
    AdapterSpec,
    FleetSpec,
    RouterSpec,
    WorkerSpec,
)
from pando_sim.traces import (
    Day,
    Reading,
    Shape,
    Trace,
    TraceError,
    open_trace,
    shaped,
)
from pando_sim.traces.adapters import Popularity
from pando_sim.worker.settings import settings_of
from pando_worker.cores import available_cores
from pando_worker.settings.adapters import LORA_SLOTS

if TYPE_CHECKING:
    from pando_operator.resource.pool import WorkerPool

OPERATOR = "pando"  # of the scalings
NOT_REPEATED = ("trace", "output", "jobs", "csv", "resume")
"""Settings that change no result, and the trace, which has no flag."""
SHORTEST_SAMPLE_S, LONGEST_SAMPLE_S, SAMPLES = 0.5, 60.0, 1000


class SimPlanError(Exception):
    """These settings cannot be simulated; the message is one line."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of the trace as it is played."""

    requests: int | None  # None: as many as its sessions send
    last_s: float  # the last arrival, if no client waited for an answer
    adapters: tuple[str, ...] = ()  # by name
    smallest_begin: int = 0  # of its sessions: tokens of a first call and its answer
    began_s: float | None = None  # Unix time; None: it has no times of day


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
        trace = _trace(settings)
        pool = manifest.read(settings.pool)
        shape = _shape(settings)
        if settings.sessions is None:
            extent = _extent(trace, shape, read)
        else:
            extent = _lasting(settings, trace)
    except (ManifestError, CostModelError, TraceError, FaultError) as error:
        raise SimPlanError(" ".join(str(error).split())) from None
    tasks = [
        Task(
            spec=_by_rule(fleet_of(settings, pool, cost, extent, policy, scaling), rule),
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


def _check_room(worker: WorkerSpec, extent: Extent) -> None:
    """Sessions that end at their first call would follow each other without end."""
    room = min(worker.context_length, worker.capacity_tokens)
    if extent.smallest_begin > room:
        raise SimPlanError(
            f"no session can begin: a replica takes calls of {room:,} tokens, and the smallest"
            f" first call has {extent.smallest_begin:,}, answer included; raise the smaller one of"
            " --context-length (engine.contextLength) and --capacity-tokens"
        )


def _trace(settings: SimSettings) -> Trace:
    reading = Reading(
        closed_loop=settings.closed_loop,
        answer_tokens_per_s=settings.answer_tokens_per_second,
        model=settings.trace_model,
        image_rule=_image_rule(settings),
        shared_tools=settings.shared_tools,
        strict=settings.strict,
    )
    if settings.tokenizer is not None:
        from pando_sim.traces.tokenizer import TextTokenizer  # loads numpy

        reading = replace(reading, tokenize=TextTokenizer(settings.tokenizer))
    return open_trace([Path(name) for name in settings.trace], reading)


def _image_rule(settings: SimSettings) -> ImageRule | None:
    """Raises SimPlanError."""
    if settings.image_rule is None:
        return None
    try:
        rule = msgspec.json.decode(settings.image_rule, type=ImageRule)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise SimPlanError(f"image_rule is not a rule: {error}") from error
    if not rule.tokens_of(None) and not (rule.sounds and rule.sounds.tokens):
        known = ", ".join(KINDS)
        raise SimPlanError(
            f"image_rule gives an image no tokens; its kinds are {known}, each with fields of its"
            " own (docs/vision.md), beside `sounds` for audio (docs/traces.md)"
        )
    return rule


def _shape(settings: SimSettings) -> Shape:
    day = None
    if settings.day_hours is not None:
        day = Day(
            hours=settings.day_hours,
            trough=settings.day_trough,
            bursts=settings.day_bursts,
            burst_factor=settings.day_burst_factor,
            burst_s=settings.day_burst_seconds,
            seed=settings.seed,
        )
    adapters = None
    if settings.adapters:
        adapters = Popularity(
            adapters=settings.adapters, exponent=settings.adapter_zipf, seed=settings.seed
        )
    return Shape(
        take=settings.take,
        repeat=settings.repeat,
        speed=settings.speed,
        day=day,
        adapters=adapters,
    )


def _extent(trace: Trace, shape: Shape, read: Callable[[Request], None]) -> Extent:
    requests, last_s, adapters = 0, 0.0, set[str]()
    for request in shaped(trace, shape):
        read(request)
        requests, last_s = requests + 1, request.at_s
        adapters.add(request.adapter)
    if not requests:
        model = trace.reading.model
        whose = f" for --trace-model {model!r}" if model is not None else ""
        raise _nothing(trace, f"request{whose}")
    names = sorted(adapters - {""}) if shape.adapters is None else shape.adapters.names
    began_s = trace.began_s() if shape.keeps_hours else None
    return Extent(requests, last_s, tuple(names), began_s=began_s)


def _lasting(settings: SimSettings, trace: Trace) -> Extent:
    begins = (session.conversations[0].calls[0] for session in trace.sessions())
    smallest = min((one.prompt.num_tokens + one.output_tokens for one in begins), default=None)
    if smallest is None:
        raise _nothing(trace, "session")
    return Extent(None, 3600 * settings.session_hours, smallest_begin=smallest)


def _nothing(trace: Trace, of_what: str) -> TraceError:
    first = trace.unplayed.first
    why = f"; none of its lines can be played, the first one is {first}" if first else ""
    return TraceError(trace.paths[0], None, f"has no {of_what}{why}")


def _host_tokens(settings: SimSettings, values: dict[str, Any], cost: CostModel) -> int:
    """What the host tier holds. Raises SimPlanError if the cost model cannot say how it works."""
    host_bytes = values.get("host_memory_gib", 0.0) * 2**30
    if not (host_bytes if settings.host_tokens is None else settings.host_tokens):
        return 0  # a cost model that workers measured has no facts about it
    try:
        cost.check_host_tier()
    except CostModelError as error:
        raise SimPlanError(str(error)) from None
    return settings.host_tokens or int(host_bytes / cost.kv_bytes_per_token)


def _worker(
    settings: SimSettings, values: dict[str, Any], cost: CostModel, adapters: tuple[str, ...]
) -> WorkerSpec:
    facts = cost.file.worker
    room = [settings.capacity_tokens or values.get("max_total_tokens")]
    if settings.capacity_tokens is None and facts is not None:
        room.append(facts.capacity_tokens)  # the machine cannot hold more
    known = [tokens for tokens in room if tokens is not None]
    if not known:
        raise SimPlanError(
            f"--capacity-tokens is required: neither the cost model {cost.name} has the size of the"
            " KV pool, nor does the manifest have engine.maxTotalTokens"
        )
    context = settings.context_length or values.get("context_length")
    if context is None and settings.sessions is not None:
        context = min(known)
    context = context or (facts and facts.context_length) or CONTEXT_LENGTH
    spec = WorkerSpec(
        cost_model=settings.cost_model,
        capacity_tokens=min(known),
        context_length=context,
        page_size=values.get("page_size", WORKER.page_size),
        chunked_prefill_size=values.get("chunked_prefill_size", WORKER.chunked_prefill_size),
        max_running_requests=values.get("max_running_requests", WORKER.max_running_requests),
        host_tokens=_host_tokens(settings, values, cost),
        engine={name: value for name, value in values.items() if name in SCHEDULING},
        served_adapters=AdapterSpec(
            names=adapters,
            slots=settings.adapter_slots or values.get("max_loras") or LORA_SLOTS,
            host=settings.host_adapters,
            load_s=settings.adapter_load_seconds,
            read_s=settings.adapter_read_seconds,
        ),
        start_s=start_s_of(settings, cost),
        start_spread=settings.start_spread,
    )
    try:
        settings_of(spec)
    except ValidationError as error:
        why = "; ".join(detail["msg"].removeprefix("Value error, ") for detail in error.errors())
        raise SimPlanError(f"spec.engine of the manifest: {why}") from None
    return spec


def start_s_of(settings: ReplaySettings, cost: CostModel) -> float:
    """Of a replica."""
    if settings.start_seconds is not None:
        return settings.start_seconds
    return START_S if cost.file.start_s is None else cost.file.start_s


def fleet_of(
    settings: SimSettings,
    pool: "WorkerPool",
    cost: CostModel,
    extent: Extent,
    policy: str,
    scaling: str,
) -> FleetSpec:
    """The fleet of one run. Raises SimPlanError if this pool cannot be simulated."""
    worker = _worker(settings, manifest.engine(pool), cost, extent.adapters)
    _check_room(worker, extent)
    replicas = settings.replicas or pool.spec.replicas
    if scaling != NO_SCALING:
        bounds = pool.spec.scaling
        replicas = min(max(replicas, bounds.min_replicas), bounds.max_replicas or replicas)
    elif replicas == 0:
        raise SimPlanError("the manifest has 0 replicas and no scaling: give --replicas")
    every = extent.last_s / SAMPLES
    return FleetSpec(
        worker=worker,
        router=RouterSpec(
            routers=settings.routers,
            clock_skew_s=settings.clock_skew_seconds,
            network_s=settings.network_seconds,
            max_outstanding=settings.max_replica_requests,
            queue_requests=settings.queue_requests,
            queue_deadline_s=settings.queue_timeout,
            bound_sessions=settings.bound_sessions,
            max_tries=settings.max_tries,
        ),
        replicas=replicas,
        clock=SINCE_MONDAY if extent.began_s is None else DayClock(unix_s=(extent.began_s,)),
        policy=policy,
        scaling=scaling,
        hpa_queue_target=settings.hpa_queue_target,
        knative_target=settings.knative_target,
        seed=settings.seed,
        sample_s=settings.sample_seconds or min(max(every, SHORTEST_SAMPLE_S), LONGEST_SAMPLE_S),
        slow_ttft_s=settings.slow_ttft_seconds,
        slow_gap_s=settings.slow_gap_seconds,
    )


def _by_rule(spec: FleetSpec, name: str) -> FleetSpec:
    """The fleet with what the rule for sessions of this name, if any, sets."""
    if not name:
        return spec
    rule = SESSION_RULES[name]
    engine = spec.worker.engine | {"schedule_policy": rule.schedule_policy}
    return replace(
        spec,
        worker=replace(spec.worker, engine=engine),
        router=replace(spec.router, bound_sessions=rule.bound_sessions),
        session_rule=name,
    )


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
