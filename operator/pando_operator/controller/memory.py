"""What a pool's loop remembers between two reconciles; what must outlive it is in the status."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from pando_operator.adapters.progress import Known
from pando_operator.controller.traffic import TrafficMeter
from pando_operator.kube.resources import Key, Object, version_of
from pando_operator.resource.pool import WorkerPool
from pando_operator.resource.status import (
    DecisionRecord,
    ShadowResult,
    TuningStatus,
    WorkerPoolStatus,
)
from pando_operator.scaling import History, from_status

log = logging.getLogger("pando.operator")


@dataclass(slots=True)
class Shadow:
    """One shadow policy's history and its current result."""

    history: History
    result: ShadowResult


@dataclass(slots=True)
class Memory:
    history: History
    decisions: tuple[DecisionRecord, ...]  # newest first
    starts: tuple[float, ...]  # seconds, newest last
    shadows: dict[str, Shadow]
    tuning: TuningStatus | None = None
    traffic: TrafficMeter = field(default_factory=TrafficMeter)
    adapters: Mapping[str, Known] = field(default_factory=dict)  # by name
    desired: int | None = None  # as last reported
    replicas: int | None = None  # the Deployment's, as this operator left it
    size_kept: tuple[str, int] | None = None  # pool version and the `spec.replicas` written over it
    waits_for: Key | None = None  # the pool that replaces its pods before this one may
    overruled: str = ""  # what somebody else wrote to the size, as last reported
    starting: set[str] = field(default_factory=set)  # uids of pods that do not serve yet
    troubled: set[str] = field(default_factory=set)  # uids of pods whose start was held up
    observed_at: float | None = None  # seconds since 1970
    written_at: float = 0.0  # when the status was written, monotonic
    reported: tuple[object, WorkerPoolStatus] | None = None  # as the server has it, as written
    _applied: dict[str, tuple[str, object]] = field(default_factory=dict)

    @classmethod
    def of(cls, pool: WorkerPool) -> "Memory":
        """Restore what an earlier operator left in the status."""
        status = pool.status
        try:
            history = from_status(status.history)
        except ValueError as error:
            extra = {"pool": pool.name, "error": str(error)}
            log.warning("history in the status cannot be read, starting anew", extra=extra)
            history = History()
        return cls(
            history=history,
            desired=status.desired,
            decisions=status.decisions,
            starts=status.start_seconds,
            tuning=status.tuning,
            shadows={one.name: Shadow(History(), one) for one in status.shadows},
            adapters={
                one.name: Known(one.source, one.identity, is_inherited=True)
                for one in status.adapters
            },
        )

    def is_applied(self, kind: str, wanted: str, item: Object | None) -> bool:
        """Whether the wanted object was applied last and nobody has changed it since."""
        return item is not None and self._applied.get(kind) == (wanted, _state(item))

    def has_applied(self, kind: str) -> bool:
        """Whether an object of this kind was applied at least once."""
        return kind in self._applied

    def applied(self, kind: str, wanted: str, item: Object) -> None:
        self._applied[kind] = (wanted, _state(item))


def _state(item: Object) -> object:
    """A value that changes when another client changes the object. A Deployment's resourceVersion
    also changes with its status, so its generation is used, which counts changes of the spec."""
    metadata: Mapping[str, object] = item["metadata"]
    version = metadata.get("generation") or version_of(item)
    return metadata.get("uid"), version, metadata.get("labels"), metadata.get("ownerReferences")
