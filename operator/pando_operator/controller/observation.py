"""`Observation`: what one reconcile saw of a pool, and the size that it wants."""

from dataclasses import dataclass

from pando_operator.controller.observing.reading import Reading
from pando_operator.controller.verdicts import Verdict
from pando_operator.kube.errors import KubeError
from pando_operator.kube.resources import Object
from pando_operator.lifecycle.census import Census
from pando_operator.lifecycle.pods import PodView
from pando_operator.resource.adapters import AdapterStatus
from pando_operator.resource.pool import WorkerPool
from pando_operator.resource.scaling import Mode
from pando_operator.scaling import Decision, Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    item: Object
    pool: WorkerPool
    pods: list[PodView]
    census: Census
    deployment: Object | None
    reading: Reading | None  # None: Redis is unreachable
    decision: Decision  # by the load, even in a mode that ignores it
    desired: int
    reason: str
    gpus: Grant  # what the GPUs of its kind allow
    degraded: Verdict
    adapters: tuple[AdapterStatus, ...]
    refusal: KubeError | None  # why the pool's objects could not be updated
    now: float  # seconds since 1970

    @property
    def mode(self) -> Mode:
        return self.pool.spec.scaling.mode

    @property
    def is_starting(self) -> bool:
        """Whether no replica is ready yet that could report a load."""
        return self.reading is not None and not self.census.ready

    @property
    def is_busy(self) -> bool:
        """Whether a change is under way or may have to start at once."""
        marks = self.reading.marks if self.reading else ()
        return bool(
            self.census.starting
            or self.census.draining
            or self.desired != self.census.ready
            or self.desired == 0
            or any(not mark.is_over for mark in marks)
        )
