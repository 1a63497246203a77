"""A pool's only replica moves before its node is emptied: another one serves before it leaves.

The pool's PodDisruptionBudget lets nobody evict an only replica, so whoever empties the node waits.
Meanwhile the pool has one replica more, on another node, and then the first leaves as any other.
"""

from collections.abc import Sequence

from pando_operator.lifecycle.pods import PodView

ONLY = 1
"""Size of a pool that would have no replica left."""


def size_to_plan(pods: Sequence[PodView], desired: int) -> int:
    """`desired`, and one more while the only replica has to move and its successor does not serve
    yet."""
    alive = [pod for pod in pods if pod.is_alive]
    must_move = any(_stays_on_cordoned(pod) for pod in alive)
    has_successor = any(pod.is_serving and not pod.cordoned for pod in alive)
    return desired + int(desired == ONLY and must_move and not has_successor)


def spare(pods: Sequence[PodView], replicas: int, desired: int | None) -> int:
    """How many of the Deployment's `replicas` are there only because another one moves."""
    must_move = any(_stays_on_cordoned(pod) for pod in pods if pod.is_alive)
    return int(desired == ONLY and replicas == ONLY + 1 and must_move)


def _stays_on_cordoned(pod: PodView) -> bool:
    return pod.cordoned and pod.draining_since is None
