"""`HpaController`: Kubernetes' HorizontalPodAutoscaler v2 on one metric, with the pool's behavior.

Every 15 s it compares the metric's average per replica with its target, does nothing within 10 %
of it, and otherwise wants the number of replicas that reaches it. Pods without values count as at
the target if the pool would shrink, and as without load if it would grow. Stabilization and rate
policies are the same functions as in Pando's operator, which uses HPA's terms. It never goes below
one replica. Kubernetes itself chooses what it adds and removes: there are no drain marks, and a
removed pod refuses further requests, which routers send elsewhere.

https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/ and
kubernetes/pkg/controller/podautoscaler/replica_calculator.go (`calcPlainMetricReplicas`).
"""

from collections.abc import Callable, Mapping
from math import ceil

from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_operator.resource.policy import ScalingPolicy
from pando_operator.scaling import History
from pando_operator.scaling.limits.behavior import lower_limit, stabilized, upper_limit
from pando_sim.fleet.control import FleetControl
from pando_sim.scaling.cluster import Cluster
from pando_sim.scaling.kind import Change

SYNC_S = 15.0
TOLERANCE = 0.1

Metric = Callable[[FleetControl, Mapping[str, Heartbeat]], dict[str, float]]
"""By replica, for those that report it."""


def queue_length(fleet: FleetControl, beats: Mapping[str, Heartbeat]) -> dict[str, float]:
    """Requests that wait in workers (`vllm:num_requests_waiting`), plus an even share of those in
    the routers."""
    share = fleet.queued() / len(beats) if beats else 0.0
    return {name: beat.waiting + share for name, beat in beats.items()}


def kv_use(fleet: FleetControl, beats: Mapping[str, Heartbeat]) -> dict[str, float]:
    """The share of its KV tokens that running requests hold (`vllm:kv_cache_usage_perc`)."""
    return {
        name: beat.pinned_tokens / beat.capacity_tokens
        for name, beat in beats.items()
        if beat.capacity_tokens
    }


class HpaController:
    def __init__(self, what: str, metric: Metric, target: float, policy: ScalingPolicy) -> None:
        """
        Args:
            what: the metric in words.
            target: for its average.
        """
        self._what = what
        self._metric = metric
        self._target = target
        self._policy = policy
        self._history = History()
        self._next_s = 0.0

    def is_due(self, fleet: FleetControl, cluster: Cluster) -> bool:
        return fleet.now_s >= self._next_s

    async def look(self, fleet: FleetControl, cluster: Cluster) -> Change | None:
        self._next_s = fleet.now_s + SYNC_S
        now_s, before = cluster.now_s(fleet), cluster.replicas
        alive = [pod.name for pod in cluster.pods() if pod.is_alive]
        heard = {b.replica: b for b in fleet.heard() if b.state is ReplicaState.READY}
        beats = {name: heard[name] for name in alive if name in heard}
        values = self._metric(fleet, beats)
        if not before or not values:
            return None  # no values are known
        wanted = proposed(values, len(alive), before, self._target)
        after = self._behaved(before, wanted, now_s)
        if after == before:
            return None
        cluster.scale(fleet, after)
        self._history = self._history.scaled(now_s, before, after, None)
        mean = sum(values.values()) / len(values)
        reason = f"{self._what} {mean:.3g} per replica, target {self._target:g}: wants {wanted}"
        return Change(before, after, reason)

    def _behaved(self, before: int, wanted: int, now_s: float) -> int:
        policy, behavior = self._policy, self._policy.behavior
        self._history = self._history.recommended(now_s, wanted)
        size = stabilized(self._history, before, behavior, now_s)
        events = self._history.events
        size = min(size, upper_limit(behavior.scale_up, before, events, now_s))
        size = max(size, lower_limit(behavior.scale_down, before, events, now_s))
        return min(max(size, policy.min_replicas, 1), policy.most_replicas)


def proposed(values: Mapping[str, float], pods: int, current: int, target: float) -> int:
    """How many replicas would bring the metric's average to its target.

    Args:
        values: of each pod that reports it; at least one.
        pods: the number of pods, including those without a value.
        current: the number of replicas.
    """
    ratio = sum(values.values()) / (len(values) * target)
    if abs(ratio - 1) <= TOLERANCE:
        return current
    silent = pods - len(values)
    if silent <= 0:
        return ceil(ratio * len(values) - 1e-9)
    assumed = target if ratio < 1 else 0.0
    again = (sum(values.values()) + silent * assumed) / (pods * target)
    if abs(again - 1) <= TOLERANCE or (again > 1) is not (ratio > 1):
        return current
    wanted = ceil(again * pods - 1e-9)
    is_other_way = wanted < current if again > 1 else wanted > current
    return current if is_other_way else wanted
