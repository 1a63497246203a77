"""Counts a pool's replicas by state, for its status."""

from collections.abc import Sequence
from dataclasses import dataclass

from pando_operator.lifecycle.pods import PodView

SILENT_S = 180.0
"""Seconds without a heartbeat after which a ready replica counts as full, whatever its load."""


@dataclass(frozen=True, slots=True)
class Census:
    replicas: int  # existing pods without those that are being deleted
    ready: int  # of these, those that take requests
    starting: int  # of these, those that do not yet
    stalled: int  # of these, those whose engines have stalled
    draining: int  # pods that leave, including those that are being deleted
    updated: int = 0  # of those that take requests: pods of the Deployment's current template
    outdated: int = 0  # existing pods of another template
    late: int = 0  # of those that do not take requests: they should long since
    silent: int = 0  # of those that take requests: nobody has heard of them for SILENT_S


def census(pods: Sequence[PodView], now: float, late_s: float) -> Census:
    """`late_s`: after how many seconds a pod that does not serve is late."""
    alive = [pod for pod in pods if pod.is_alive]
    ready = sum(pod.is_serving for pod in alive)
    draining = sum(pod.draining_since is not None for pod in alive)
    stalled = sum(pod.stalled and pod.draining_since is None for pod in alive)
    ending = sum(pod.deleting and not pod.finished and not pod.is_ghost(now) for pod in pods)
    return Census(
        replicas=len(alive),
        ready=ready,
        starting=len(alive) - ready - draining - stalled,
        stalled=stalled,
        draining=draining + ending,
        updated=sum(pod.is_serving and not pod.outdated for pod in alive),
        outdated=sum(pod.outdated for pod in alive),
        late=stalled + sum(_has_passed(pod.unready_since, late_s, now) for pod in alive),
        silent=len(silent(pods, now)),
    )


def silent(pods: Sequence[PodView], now: float) -> list[PodView]:
    """The pods that Kubernetes calls ready, that have sent no heartbeat for SILENT_S, and where no
    router has a request."""
    return [pod for pod in pods if _has_passed(pod.silent_since, SILENT_S, now)]


def _has_passed(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now - since >= seconds
