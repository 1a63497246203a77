"""A rollout, as a pool's pods show it: who is of an old template, and whom Kubernetes takes next.

Kubernetes replaces the pods of old templates one by one and keeps `replicas` and one more pods
meanwhile. Where `replicas` is lowered by one, its Deployment controller takes that one from the
largest ReplicaSet, of equal ones from the oldest (`scale` in pkg/controller/deployment/sync.go: the
share of one pod rounds to none, and the largest gets what is left over); that one's controller
takes the pod of the lowest standing. Then, and whenever a new pod is ready, it takes old pods away
that are not ready before others (`cleanupUnhealthyReplicas` in rolling.go).
"""

from collections import defaultdict
from collections.abc import Sequence

from pando_operator.lifecycle.pods import PodView

SURGE = 1
"""Pods above `replicas` while a Deployment rolls: its strategy's maxSurge."""


def is_rolling(alive: Sequence[PodView]) -> bool:
    """Whether pods of two templates are there."""
    return len({pod.revision for pod in alive}) > 1


def surplus(alive: Sequence[PodView], replicas: int) -> int:
    """Pods that Kubernetes is about to delete, because `replicas` was lowered."""
    return max(0, len(alive) - replicas - (SURGE if is_rolling(alive) else 0))


class Rollout:
    """Of pods of at least one template, all alive."""

    def __init__(self, alive: Sequence[PodView]) -> None:
        sets: defaultdict[str, list[PodView]] = defaultdict(list)
        for pod in alive:
            sets[pod.revision].append(pod)
        self._sets = sets
        # Where something changed that no label or annotation tells, the last to begin is new.
        self._newest = max(sets, key=lambda one: (_is_current(sets[one]), _begun(sets[one])))

    def order(self, pod: PodView) -> tuple[float, ...]:
        """Those that the rollout replaces before those that it makes; of several old templates'
        as Kubernetes does."""
        mine = self._sets[pod.revision]
        return pod.revision == self._newest, -len(mine), _begun(mine)

    def next_taken(self) -> list[PodView]:
        """Those of which Kubernetes takes one where `replicas` is one lower. Whether the new
        ReplicaSet is older than an equal one, pods do not tell: it may be, after a rollback."""
        most = max(map(len, self._sets.values()))
        equal = {name: pods for name, pods in self._sets.items() if len(pods) == most}
        new = equal.pop(self._newest, None)
        old = min(equal.values(), key=_begun, default=None)
        return [pod for pods in (new, old) if pods for pod in _lowest(pods)]


def _lowest(pods: Sequence[PodView]) -> list[PodView]:
    standing = min(pod.standing for pod in pods)
    return [pod for pod in pods if pod.standing == standing]


def _is_current(pods: Sequence[PodView]) -> bool:
    return not any(pod.outdated for pod in pods)


def _begun(pods: Sequence[PodView]) -> float:
    return min(pod.created for pod in pods)
