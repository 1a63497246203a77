"""The input of one plan: a pool's pods and marks at one moment, and its scaling settings."""

from collections.abc import Sequence

from pando_fleet.records.marks import Mark, MarkKind
from pando_operator.lifecycle.pods import PodView
from pando_operator.lifecycle.rollout import is_rolling
from pando_operator.resource.scaling import Scaling

DRAIN_MARK_S = 120
"""Lifetime of a drain mark without an operator; it is renewed after half of it."""

HAND_OFF_MARK_S = 60
"""Longest time for which a hand-off delays the deletion of a drained replica."""

WARM_MARK_S = 900
"""Lifetime of a warm mark. It is set while the model loads, and again if that takes longer."""


class PoolState:
    """A read-only view."""

    def __init__(
        self,
        pods: Sequence[PodView],
        marks: Sequence[Mark],
        now: float,
        scaling: Scaling,
    ) -> None:
        self.alive = [pod for pod in pods if pod.is_alive]
        self.now = now
        self.scaling = scaling
        self._marks = {(mark.kind, mark.replica): mark for mark in marks}

    @property
    def is_rolling(self) -> bool:
        return is_rolling(self.alive)

    def mark(self, kind: MarkKind, pod: PodView) -> Mark | None:
        """The mark that Redis has for the pod, active or over."""
        return self._marks.get((kind, pod.name))

    def open_mark(self, kind: MarkKind, pod: PodView) -> Mark | None:
        mark = self.mark(kind, pod)
        return mark if mark and not mark.is_over else None

    def others_serve(self, pod: PodView) -> bool:
        """Whether another replica takes requests now."""
        return any(other.is_serving and other.name != pod.name for other in self.alive)
