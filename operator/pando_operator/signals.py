"""What Redis tells of a pool, as the signals that a decision looks at."""

from collections.abc import Sequence

from pando_fleet.queues import Queued
from pando_fleet.replica import Heartbeat, Replica, ReplicaState
from pando_operator.scaling import ReplicaLoad, RouterQueue, Signals


def signals_of(replicas: Sequence[Replica], queued: Queued) -> Signals:
    """Of the replicas that are ready and that no mark withholds: the others take no requests, so
    their room is none. Silent ones are in it with their age, which is for the decision to judge."""
    return Signals(
        loads=tuple(
            _load(each.beat, each.age_ms)
            for each in replicas
            if each.beat.state is ReplicaState.READY and not each.withheld
        ),
        queue=RouterQueue(
            requests=queued.requests, waited_s=queued.waited_ms / 1000, tokens=queued.tokens
        ),
    )


def _load(beat: Heartbeat, age_ms: int) -> ReplicaLoad:
    return ReplicaLoad(
        name=beat.replica,
        incarnation=beat.incarnation,
        age_s=age_ms / 1000,
        capacity_tokens=beat.capacity_tokens,
        pinned_tokens=beat.pinned_tokens,
        cached_tokens=beat.cached_tokens,
        running=beat.running,
        waiting=beat.waiting,
        waiting_prompt_tokens=beat.waiting_tokens,
        waiting_output_tokens=beat.waiting_output_tokens,
        prefill_tokens_per_s=beat.prefill_tokens_per_s,
        release_tokens_per_s=beat.release_tokens_per_s,
        prompt_tokens_total=beat.prompt_tokens_total,
        hot_evicted_tokens_total=beat.hot_evicted_tokens_total,
    )
