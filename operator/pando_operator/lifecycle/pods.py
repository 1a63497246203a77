"""What the lifecycle knows of a pod, and how it reads that from the API server's object.

The annotation `DRAIN` records a drain: the time since which routers place nothing on the pod.
`HAND_OFF` records that its prefixes were handed off. Marks in Redis are renewed from both, so
neither a restart of the operator nor a loss of Redis' data changes anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

GATE = "pando.dev/serving"
"""Readiness gate, a condition of the pod: True while the pod may take requests."""

DRAIN = "pando.dev/draining-since"
HAND_OFF = "pando.dev/handed-off-at"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
REVISION = "pod-template-hash"

TEMPLATE = "pando.dev/template"
"""Digest of the template that a pod was made from; a rollout replaces pods with another digest."""


class Standing(IntEnum):
    """How Kubernetes ranks pods for deletion; it deletes the lowest first.

    The order of the ReplicaSet controller (kubernetes/pkg/controller, ActivePodsWithRanks). Its
    later criteria, deletion cost first, are left out, since old versions lack them.
    """

    UNASSIGNED = 0
    PENDING = 1
    UNREADY = 2
    READY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod of a pool, as the API server and Redis show it. Times are seconds since 1970."""

    name: str  # also of its replica
    uid: str
    created: float
    standing: Standing
    containers_ready: bool  # the worker's own readiness probe
    gate: bool  # whether the condition GATE is True
    deleting: bool = False
    finished: bool = False  # failed or succeeded, so Kubernetes creates another
    revision: str = ""  # of the pod template
    outdated: bool = False  # the Deployment has another template now
    ready_since: float | None = None  # when its containers became ready
    draining_since: float | None = None  # from the annotation
    handed_off: bool = False  # from the annotation
    deletion_cost: int | None = None
    # Requests that run or wait there or are on their way, from Redis; None: unknown.
    requests: int | None = None
    stalled: bool = False  # from its heartbeat: it serves nothing, whatever its conditions say

    @property
    def is_alive(self) -> bool:
        """Whether Kubernetes counts it as a replica."""
        return not self.deleting and not self.finished

    @property
    def is_serving(self) -> bool:
        is_open = self.is_alive and self.containers_ready and self.gate and not self.stalled
        return is_open and self.draining_since is None

    @property
    def is_useless(self) -> bool:
        """Whether it serves nothing, and no client waits for a request there."""
        return self.stalled or (not self.containers_ready and not self.requests)


def pod_view(
    pod: Mapping[str, Any],
    requests: int | None,
    template: Mapping[str, Any] | None = None,
    *,
    stalled: bool = False,
) -> PodView:
    """Read a pod from the API server's JSON. Redis gives `requests` and `stalled`, its Deployment
    gives `template`."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    conditions = {entry["type"]: entry for entry in status.get("conditions") or ()}
    containers = conditions.get("ContainersReady", {})
    is_ready = containers.get("status") == "True"
    return PodView(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        created=_seconds(metadata.get("creationTimestamp")) or 0.0,
        standing=_standing(pod, conditions),
        containers_ready=is_ready,
        gate=conditions.get(GATE, {}).get("status") == "True",
        deleting=bool(metadata.get("deletionTimestamp")),
        finished=status.get("phase") in ("Failed", "Succeeded"),
        revision=(metadata.get("labels") or {}).get(REVISION, ""),
        outdated=_is_outdated(metadata, (template or {}).get("metadata") or {}),
        ready_since=_seconds(containers.get("lastTransitionTime")) if is_ready else None,
        draining_since=_seconds(annotations.get(DRAIN)),
        handed_off=HAND_OFF in annotations,
        deletion_cost=_integer(annotations.get(DELETION_COST)),
        requests=requests,
        stalled=stalled,
    )


def _is_outdated(metadata: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    """Whether the pod lacks one of the template's labels or annotations, such as `TEMPLATE` or that
    of `kubectl rollout restart`. A pod may have more."""
    return any(
        (metadata.get(kind) or {}).get(name) != value
        for kind in ("labels", "annotations")
        for name, value in (template.get(kind) or {}).items()
    )


def _standing(pod: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> Standing:
    if not (pod.get("spec") or {}).get("nodeName"):
        return Standing.UNASSIGNED
    if (pod.get("status") or {}).get("phase", "Pending") == "Pending":
        return Standing.PENDING
    is_ready = conditions.get("Ready", {}).get("status") == "True"
    return Standing.READY if is_ready else Standing.UNREADY


def time_text(seconds: float) -> str:
    """RFC 3339 with milliseconds, for annotations."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _seconds(text: str | None) -> float | None:
    """The time in an annotation; None if there is none, or if it is no time."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text else None
    except ValueError:
        return None
