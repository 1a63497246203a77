"""What the loop of one pool remembers between two looks; the status has what must outlive it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from pando_operator.kube.resources import Object, version_of
from pando_operator.resource.pool import WorkerPool
from pando_operator.resource.status import DecisionRecord, ShadowResult
from pando_operator.scaling import History, from_status

log = logging.getLogger("pando.operator")


@dataclass(slots=True)
class Shadow:
    """One shadow policy's own past, and what it wants now."""

    history: History
    result: ShadowResult


@dataclass(slots=True)
class Memory:
    history: History
    decisions: tuple[DecisionRecord, ...]  # newest first
    starts: tuple[float, ...]  # seconds, newest last
    shadows: dict[str, Shadow]
    desired: int | None = None  # as it was told last
    replicas: int | None = None  # the Deployment's, as this operator left it
    size_kept: tuple[str, int] | None = None  # `spec.replicas` as written, over which version
    starting: set[str] = field(default_factory=set)  # uids of pods that were seen not yet serving
    observed_at: float | None = None  # seconds since 1970
    written_at: float = 0.0  # the status, monotonic
    _applied: dict[str, tuple[str, object]] = field(default_factory=dict)

    @classmethod
    def of(cls, pool: WorkerPool) -> "Memory":
        """As an earlier operator left it in the status."""
        status = pool.status
        try:
            history = from_status(status.history)
        except ValueError as error:
            extra = {"pool": pool.name, "error": str(error)}
            log.warning("what the status remembers is not understood", extra=extra)
            history = History()
        return cls(
            history=history,
            desired=status.desired,
            decisions=status.decisions,
            starts=status.start_seconds,
            shadows={one.name: Shadow(History(), one) for one in status.shadows},
        )

    def is_applied(self, kind: str, wanted: str, item: Object | None) -> bool:
        """Whether what was applied last is what is wanted, and nobody has changed it since."""
        return item is not None and self._applied.get(kind) == (wanted, _state(item))

    def has_applied(self, kind: str) -> bool:
        """Whether it was made or kept at least once."""
        return kind in self._applied

    def applied(self, kind: str, wanted: str, item: Object) -> None:
        self._applied[kind] = (wanted, _state(item))


def _state(item: Object) -> object:
    """What changes when somebody changes it: Deployments, which tell their own state, too, count
    changes of their spec apart."""
    metadata: Mapping[str, object] = item["metadata"]
    version = metadata.get("generation") or version_of(item)
    return metadata.get("uid"), version, metadata.get("labels"), metadata.get("ownerReferences")
