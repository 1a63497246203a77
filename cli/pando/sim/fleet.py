"""The simulated fleet, from the settings and the pool's manifest."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pando.sim import manifest
from pando.sim.errors import SimPlanError
from pando.sim.manifest import SCHEDULING
from pando.sim.trace import Extent
from pando_sim.cost import CostModel, CostModelError
from pando_sim.day_clock import SINCE_MONDAY, DayClock
from pando_sim.session_rules import SESSION_RULES
from pando_sim.settings import NO_SCALING, ReplaySettings, SimSettings
from pando_sim.spec import (
    CONTEXT_LENGTH,
    START_S,
    WORKER,
    AdapterSpec,
    FleetSpec,
    RouterSpec,
    WorkerSpec,
)
from pando_sim.worker.settings import settings_of
from pando_worker.settings.adapters import LORA_SLOTS

if TYPE_CHECKING:
    from pando_operator.resource.pool import WorkerPool

SHORTEST_SAMPLE_S, LONGEST_SAMPLE_S, SAMPLES = 0.5, 60.0, 1000


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


def by_rule(spec: FleetSpec, name: str) -> FleetSpec:
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


def _check_room(worker: WorkerSpec, extent: Extent) -> None:
    """Sessions that end at their first call would follow each other without end."""
    room = min(worker.context_length, worker.capacity_tokens)
    if extent.smallest_begin > room:
        raise SimPlanError(
            f"no session can begin: a replica takes calls of {room:,} tokens, and the smallest"
            f" first call has {extent.smallest_begin:,}, answer included; raise the smaller one of"
            " --context-length (engine.contextLength) and --capacity-tokens"
        )


def start_s_of(settings: ReplaySettings, cost: CostModel) -> float:
    """Of a replica."""
    if settings.start_seconds is not None:
        return settings.start_seconds
    return START_S if cost.file.start_s is None else cost.file.start_s
