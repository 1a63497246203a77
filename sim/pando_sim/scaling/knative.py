"""`KnativeController`: Knative's autoscaler (KPA) on concurrency, with its defaults.

Every 2 s it averages the requests in progress, including those in the routers, over 60 s and over
6 s, and wants the number of replicas at which each has 70 % of the target. If the short average
wants at least twice the ready replicas, it panics: until that is 60 s ago, the pool only grows. It
never shrinks below half of the ready replicas at once. Scaling to zero is left out: it never goes
below one replica. Removed pods finish their requests, as Knative's do.

https://knative.dev/docs/serving/autoscaling/ and
knative/serving/pkg/autoscaler/scaling/autoscaler.go (`Scale`).
"""

from collections import deque
from math import ceil, floor

from pando_operator.resource.policy import ScalingPolicy
from pando_sim.fleet.control import FleetControl
from pando_sim.scaling.cluster import Cluster
from pando_sim.scaling.kind import Change

TICK_S = 2.0
STABLE_S, PANIC_S = 60.0, 6.0
PANIC_THRESHOLD = 2.0
UTILIZATION = 0.7
MOST_UP, MOST_DOWN = 1000.0, 2.0  # times the ready replicas, at once


class KnativeController:
    def __init__(self, target: float, policy: ScalingPolicy) -> None:
        """
        Args:
            target: concurrent requests per replica (`autoscaling.knative.dev/target`).
            policy: only its bounds are used.
        """
        self._target = target * UTILIZATION
        self._policy = policy
        self._seen: deque[tuple[float, int]] = deque()  # when, and how many requests
        self._panic_s: float | None = None  # when the threshold was last reached
        self._most_in_panic = 0
        self._next_s = 0.0

    def is_due(self, fleet: FleetControl, cluster: Cluster) -> bool:
        return fleet.now_s >= self._next_s

    async def look(self, fleet: FleetControl, cluster: Cluster) -> Change | None:
        now_s, before = fleet.now_s, cluster.replicas
        self._next_s = now_s + TICK_S
        ready = sum(pod.is_alive and pod.containers_ready for pod in cluster.pods())
        wanted = self.wanted(now_s, fleet.in_flight(), max(1, ready))
        after = min(max(wanted, self._policy.min_replicas, 1), self._policy.most_replicas)
        if after == before:
            return None
        cluster.scale(fleet, after)
        said = "panics" if self._panic_s is not None else f"{self._mean(now_s, STABLE_S):.3g}"
        reason = f"concurrent requests: {said}, {self._target:g} per replica: wants {wanted}"
        return Change(before, after, reason)

    def _mean(self, now_s: float, window_s: float) -> float:
        seen = [count for at_s, count in self._seen if at_s > now_s - window_s]
        return sum(seen) / len(seen)

    def wanted(self, now_s: float, requests: int, ready: int) -> int:
        """Replicas, before bounds; call it at each tick."""
        self._seen.append((now_s, requests))
        while self._seen[0][0] <= now_s - STABLE_S:
            self._seen.popleft()
        least, most = floor(ready / MOST_DOWN), ceil(ready * MOST_UP)
        raw = [ceil(self._mean(now_s, one) / self._target) for one in (STABLE_S, PANIC_S)]
        stable, panic = (min(max(one, least), most) for one in raw)
        if raw[1] / ready >= PANIC_THRESHOLD:
            self._panic_s = now_s
        elif self._panic_s is not None and self._panic_s + STABLE_S < now_s:
            self._panic_s, self._most_in_panic = None, 0
        if self._panic_s is None:
            return stable
        self._most_in_panic = max(self._most_in_panic, stable, panic)
        return self._most_in_panic
