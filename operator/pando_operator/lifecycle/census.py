"""Counts a pool's replicas by state, for its status."""

from collections.abc import Sequence
from dataclasses import dataclass

from pando_operator.lifecycle.pods import PodView


@dataclass(frozen=True, slots=True)
class Census:
    replicas: int  # existing pods without those that are being deleted
    ready: int  # of these, those that take requests
    starting: int  # of these, those that do not yet
    stalled: int  # of these, those whose engines have stalled
    draining: int  # pods that leave, including those that are being deleted


def census(pods: Sequence[PodView]) -> Census:
    alive = [pod for pod in pods if pod.is_alive]
    ready = sum(pod.is_serving for pod in alive)
    draining = sum(pod.draining_since is not None for pod in alive)
    stalled = sum(pod.stalled and pod.draining_since is None for pod in alive)
    ending = sum(pod.deleting and not pod.finished for pod in pods)
    return Census(
        replicas=len(alive),
        ready=ready,
        starting=len(alive) - ready - draining - stalled,
        stalled=stalled,
        draining=draining + ending,
    )
