"""A rollout, as a pool's pods show it: which have an old template, and which go next.

Kubernetes replaces the pods of old templates one by one and meanwhile keeps one pod more than
`replicas`. If `replicas` falls by one, the Deployment controller removes a pod from the largest
ReplicaSet, or from the oldest of equal ones (`scale` in pkg/controller/deployment/sync.go: the
share of one pod rounds to none, and the largest gets the remainder). The ReplicaSet controller then
deletes the pod of the lowest standing. After that, and whenever a new pod is ready, old pods that
are not ready are deleted before others (`cleanupUnhealthyReplicas` in rolling.go).
"""

from collections import defaultdict
from collections.abc import Sequence

from pando_operator.lifecycle.pods import PodView

SURGE = 1
"""Pods above `replicas` during a rollout: the maxSurge of the Deployment's strategy."""


def is_rolling(alive: Sequence[PodView]) -> bool:
    """Whether pods of two templates exist."""
    return len({pod.revision for pod in alive}) > 1


def surplus(alive: Sequence[PodView], replicas: int) -> int:
    """Pods that Kubernetes will delete soon, because `replicas` was lowered."""
    return max(0, len(alive) - replicas - (SURGE if is_rolling(alive) else 0))


class Rollout:
    """A pool's live pods by template; at least one pod."""

    def __init__(self, alive: Sequence[PodView]) -> None:
        sets: defaultdict[str, list[PodView]] = defaultdict(list)
        for pod in alive:
            sets[pod.revision].append(pod)
        self._sets = sets
        # If no label or annotation shows what changed, the template whose pods began last is new.
        self._newest = max(sets, key=lambda one: (_is_current(sets[one]), _begun(sets[one])))

    def order(self, pod: PodView) -> tuple[float, ...]:
        """A sort key: replaced pods before new ones, several old templates as in Kubernetes."""
        mine = self._sets[pod.revision]
        return pod.revision == self._newest, -len(mine), _begun(mine)

    def next_taken(self) -> list[PodView]:
        """The pods of which Kubernetes deletes one if `replicas` falls by one. Pods do not show
        whether the new ReplicaSet is older than one of equal size, as after a rollback."""
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
