"""What one plan looks at: the pods and marks of a pool at one moment, and how it is to be run."""

from collections.abc import Sequence

from pando_fleet.records.marks import Mark, MarkKind
from pando_operator.lifecycle.pods import PodView
from pando_operator.lifecycle.rollout import is_rolling
from pando_operator.resource.scaling import Scaling

DRAIN_MARK_S = 120
"""A drain mark lasts so long without an operator; it is renewed when half of that is over."""

HAND_OFF_MARK_S = 60
"""Longest time that a hand-off keeps a drained replica from going."""

WARM_MARK_S = 900
"""A warm mark is set while the model loads, and again where that takes longer."""


class World:
    """Read only."""

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
        """The mark as far as Redis remembers it, over or not."""
        return self._marks.get((kind, pod.name))

    def open_mark(self, kind: MarkKind, pod: PodView) -> Mark | None:
        mark = self.mark(kind, pod)
        return mark if mark and not mark.is_over else None

    def others_serve(self, pod: PodView) -> bool:
        """Whether anyone else takes requests now."""
        return any(other.is_serving and other.name != pod.name for other in self.alive)
