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

from pando_operator.kube.resources import MANAGER

GATE = "pando.dev/serving"
"""Readiness gate, a condition of the pod: True while the pod may take requests."""

DRAIN = "pando.dev/draining-since"
HAND_OFF = "pando.dev/handed-off-at"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
REVISION = "pod-template-hash"

TEMPLATE = "pando.dev/template"
"""Digest of the template that a pod was made from; a rollout replaces pods with another digest."""


GHOST_S = 30.0
"""Seconds beyond its grace period after which nothing runs in a deleted pod: its node is gone."""


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
    """One pod of a pool, as the API server and Redis show it. Times are seconds since 1970.

    Those of `sightings.py` are by the clock of whoever compares them: the clocks of an earlier
    operator, of a node and of the API server may differ by any amount.
    """

    name: str  # also of its replica
    uid: str
    created: float
    standing: Standing
    containers_ready: bool  # the worker's own readiness probe
    gate: bool  # whether the condition GATE is True
    heard: bool | None = True  # whether its heartbeat is fresh; None: Redis is unreachable
    deleting: bool = False
    grace_s: float = 0.0  # of its deletion
    finished: bool = False  # failed or succeeded, so Kubernetes creates another
    revision: str = ""  # of the pod template
    outdated: bool = False  # the Deployment has another template now
    ready_since: float | None = None  # when its containers became ready, then by `sightings.py`
    draining_since: float | None = None  # from the annotation, then by `sightings.py`
    deleting_since: float | None = None  # by `sightings.py`, like the next three
    silent_since: float | None = None  # since when it serves and nobody hears of it
    unready_since: float | None = None  # since when it should serve and does not
    joining_since: float | None = None  # since when nothing but its gate keeps it from serving
    handed_off: bool = False  # from the annotation
    deletion_cost: int | None = None
    # Requests that run or wait there or are on their way, from Redis; None: unknown.
    requests: int | None = None
    stalled: bool = False  # from its heartbeat: it serves nothing, whatever its conditions say
    troubled: bool = False  # something other than its model's size keeps it from starting
    cordoned: bool = False  # its node takes no new pods, mostly because it is being emptied
    lacks_adapters: bool = False  # its gate stays closed until it has loaded some

    @property
    def is_alive(self) -> bool:
        """Whether Kubernetes counts it as a replica."""
        return not self.deleting and not self.finished

    @property
    def is_serving(self) -> bool:
        is_open = self.is_alive and self.containers_ready and self.gate and not self.stalled
        return is_open and not self.is_lost and self.draining_since is None

    @property
    def is_lost(self) -> bool:
        """Whether its node is gone. Kubernetes then takes back `Ready` alone, and the kubelet that
        reported the containers as ready can take back nothing."""
        is_unready = self.gate and self.standing is not Standing.READY
        return self.containers_ready and is_unready and not self.heard

    @property
    def is_useless(self) -> bool:
        """Whether it serves nothing, and no client waits for a request there."""
        is_dead = not self.containers_ready or self.is_lost
        return self.stalled or (is_dead and not self.requests)

    def is_ghost(self, now: float) -> bool:
        """Whether it is a deleted pod of which only the API server's object is left."""
        since = self.deleting_since
        return self.deleting and since is not None and now - since > self.grace_s + GHOST_S


def pod_view(
    pod: Mapping[str, Any],
    requests: int | None,
    marks: Mapping[str, Any] | None = None,
    *,
    heard: bool | None = True,
    stalled: bool = False,
    troubled: bool = False,
    cordoned: bool = False,
) -> PodView:
    """Read a pod from the API server's JSON. Redis gives `requests`, `heard` and `stalled`, its
    Deployment gives `marks` (`marks_of`)."""
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
        heard=heard,
        deleting=bool(metadata.get("deletionTimestamp")),
        grace_s=float(metadata.get("deletionGracePeriodSeconds") or 0),
        finished=status.get("phase") in ("Failed", "Succeeded"),
        revision=(metadata.get("labels") or {}).get(REVISION, ""),
        outdated=_is_outdated(metadata, marks or {}),
        ready_since=_seconds(containers.get("lastTransitionTime")) if is_ready else None,
        draining_since=_seconds(annotations.get(DRAIN)),
        handed_off=HAND_OFF in annotations,
        deletion_cost=_integer(annotations.get(DELETION_COST)),
        requests=requests,
        stalled=stalled,
        troubled=troubled,
        cordoned=cordoned,
    )


def marks_of(deployment: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The labels and annotations by which pods of the Deployment's current template are known.

    `TEMPLATE` stands for all that the operator has applied: a webhook may write other values of its
    labels and annotations into the pods. What others have put into the template is
    compared itself, such as the annotation of `kubectl rollout restart`.
    """
    metadata = ((deployment or {}).get("spec") or {}).get("template", {}).get("metadata") or {}
    applied = _applied(deployment or {})
    return {
        kind: {
            name: value
            for name, value in (metadata.get(kind) or {}).items()
            if name == TEMPLATE or name not in applied.get(kind, ())
        }
        for kind in ("labels", "annotations")
    }


def _applied(deployment: Mapping[str, Any]) -> Mapping[str, set[str]]:
    """The names of the template's labels and annotations whose values the operator applied."""
    found: dict[str, set[str]] = {}
    for one in deployment.get("metadata", {}).get("managedFields") or ():
        if one.get("manager") != MANAGER or one.get("operation") != "Apply":
            continue
        fields = one.get("fieldsV1") or {}
        for level in ("f:spec", "f:template", "f:metadata"):
            fields = fields.get(level) or {}
        for kind in ("labels", "annotations"):
            names = (name[2:] for name in fields.get(f"f:{kind}") or () if name != ".")
            found.setdefault(kind, set()).update(names)
    return found


def _is_outdated(metadata: Mapping[str, Any], marks: Mapping[str, Any]) -> bool:
    """Whether the pod lacks one of its template's `marks_of`. A pod may have more."""
    return any(
        (metadata.get(kind) or {}).get(name) != value
        for kind in ("labels", "annotations")
        for name, value in (marks.get(kind) or {}).items()
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
