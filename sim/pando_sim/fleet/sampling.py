"""Samples the pool at one moment."""

from collections.abc import Sequence

from pando_sim.fleet.fleet import Fleet
from pando_sim.fleet.routing.router import Router
from pando_sim.records import Sample
from pando_sim.worker.replica import ReplicaState


def sample(
    now_s: float, fleet: Fleet, routers: Sequence[Router], *, arrived: int, finished: int
) -> Sample:
    replicas = list(fleet.replicas.values())
    stats = [replica.stats() for replica in replicas]
    ready = [
        each
        for replica, each in zip(replicas, stats, strict=True)
        if replica.state is ReplicaState.READY
    ]
    by_name = sorted(
        (replica.name, each.prompt_tokens_total - each.cached_prompt_tokens_total)
        for replica, each in zip(replicas, stats, strict=True)
    )
    return Sample(
        at_s=now_s,
        replicas=len(replicas),
        ready=len(ready),
        draining=sum(1 for _ in fleet.of(ReplicaState.DRAINING)),
        queued=sum(len(router.queue) + len(router.crowd) for router in routers),
        waiting=sum(each.waiting for each in stats),
        running=sum(each.running for each in stats),
        capacity_tokens=sum(each.capacity_tokens for each in ready),
        pinned_tokens=sum(each.pinned_tokens for each in ready),
        cached_tokens=sum(each.cached_tokens for each in ready),
        arrived=arrived,
        finished=finished,
        prompt_tokens=fleet.gone_prompt_tokens + sum(s.prompt_tokens_total for s in stats),
        cached_prompt_tokens=(
            fleet.gone_cached_tokens + sum(s.cached_prompt_tokens_total for s in stats)
        ),
        output_tokens=fleet.gone_output_tokens + sum(s.output_tokens_total for s in stats),
        replica_seconds=(
            fleet.replica_seconds + sum(now_s - replica.started_s for replica in replicas)
        ),
        adapter_loads=(
            fleet.gone_adapter_loads + sum(replica.adapters.loads for replica in replicas)
        ),
        prefilled_by_replica=tuple(tokens for _, tokens in by_name),
    )
