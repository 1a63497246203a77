"""`Cluster`: the Kubernetes of a simulated pool: a Deployment's size, its pods as API objects, and
the actions of controllers and the kubelet on them. A pod's process is a replica of the fleet.

A pod's process starts at once and is ready after the worker's start time. It restarts if it dies;
when the pod is deleted, it finishes its requests within the grace period. Nothing is scheduled:
there is always a node.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pando_operator.lifecycle.pods import (
    DRAIN,
    GATE,
    REVISION,
    PodView,
    pod_view,
    time_text,
)
from pando_sim.fleet.control import FleetControl
from pando_sim.worker.replica import ReplicaState

START_S = 4 * 86_400.0
"""The run's start on the cluster's clock, as Unix time; schedules go by the run's `DayClock`."""

Pod = dict[str, Any]

_KUBELET, _READY = "ContainersReady", "Ready"


class Cluster:
    """Call `step` often to let time pass."""

    def __init__(self, *, grace_s: float, gated: bool) -> None:
        """
        Args:
            gated: whether a pod is ready only while its readiness gate is also open.
        """
        self.replicas = 0  # of the Deployment
        self.has_changed = True  # since it was last set to False
        self._grace_s = grace_s
        self._gated = gated
        self._pods: dict[str, Pod] = {}  # in the order of their creation
        self._made = 0
        self._seen = -1  # changes of the fleet

    def now_s(self, fleet: FleetControl) -> float:
        """Unix time in seconds."""
        return START_S + fleet.now_s

    def pods(self, requests: Mapping[str, int] | None = None) -> list[PodView]:
        """The pods as the operator reads them; `requests` comes from Redis."""
        known = requests or {}
        return [pod_view(pod, known.get(name)) for name, pod in self._pods.items()]

    def leaving(self) -> Iterator[str]:
        """Pods that are deleted, or that drain before their deletion."""
        for name, pod in self._pods.items():
            if _is_deleted(pod) or DRAIN in pod["metadata"]["annotations"]:
                yield name

    def adopt(self, fleet: FleetControl) -> None:
        """Makes pods of the fleet's current replicas."""
        for replica in fleet.replicas():
            pod = self._add(replica.name, START_S + replica.started_s)
            self._set(pod, GATE, True, self.now_s(fleet))
        self.replicas = self._made = len(self._pods)  # whose names are numbers from 0
        self.step(fleet)

    def step(self, fleet: FleetControl) -> None:
        """Applies what happened since the last call, as the kubelet reports it."""
        if self._is_settled and fleet.changes == self._seen:
            return
        self._seen = fleet.changes
        views = {replica.name: replica for replica in fleet.replicas()}
        now_s = self.now_s(fleet)
        for name, pod in list(self._pods.items()):
            view = views.get(name)
            if _is_deleted(pod):
                if view is None or not view.requests or now_s >= _end_s(pod):
                    if view is not None:
                        fleet.stop(name)
                    del self._pods[name]
                    self.has_changed = True
                continue
            if view is None:  # its process died
                fleet.start(name)
            is_ready = view is not None and view.state is ReplicaState.READY
            self._set(pod, _KUBELET, is_ready, now_s)
            self._set(pod, _READY, is_ready and (not self._gated or _is(pod, GATE)), now_s)
        self._keep_size(fleet)

    @property
    def _is_settled(self) -> bool:
        """Whether only a change of the fleet can have anything to apply."""
        return not self.has_changed and not any(map(_is_deleted, self._pods.values()))

    # Actions of the API server's clients

    def scale(self, fleet: FleetControl, replicas: int) -> None:
        self.replicas = replicas
        self._keep_size(fleet)

    def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """None removes an annotation. A deleted pod is ignored."""
        if (pod := self._pods.get(name)) is not None:
            kept = {**pod["metadata"]["annotations"], **annotations}
            pod["metadata"]["annotations"] = {k: v for k, v in kept.items() if v is not None}
            self.has_changed = True

    def set_gate(self, fleet: FleetControl, name: str, *, is_open: bool) -> None:
        if (pod := self._pods.get(name)) is not None:
            self._set(pod, GATE, is_open, self.now_s(fleet))

    # The ReplicaSet controller

    def _keep_size(self, fleet: FleetControl) -> None:
        alive = [name for name, pod in self._pods.items() if not _is_deleted(pod)]
        for _ in range(self.replicas - len(alive)):
            self._start(fleet)
        if len(alive) > self.replicas:
            alive.sort(key=lambda name: _rank(self._pods[name]))
            for name in alive[: len(alive) - self.replicas]:
                self._delete(fleet, name)

    def _start(self, fleet: FleetControl) -> None:
        taken = {replica.name for replica in fleet.replicas()} | self._pods.keys()
        while (name := f"replica-{self._made}") in taken:
            self._made += 1
        self._made += 1  # no name is used twice
        fleet.start(name)
        self._add(name, self.now_s(fleet))

    def _delete(self, fleet: FleetControl, name: str) -> None:
        """Does what SIGTERM does: a starting pod ends at once, others finish their requests."""
        pod, now_s = self._pods[name], self.now_s(fleet)
        pod["metadata"]["deletionTimestamp"] = time_text(now_s)
        pod["end_s"] = now_s + self._grace_s
        self.has_changed = True
        state = next((one.state for one in fleet.replicas() if one.name == name), None)
        if state is ReplicaState.STARTING:
            fleet.stop(name)
        elif state is not None:
            fleet.drain(name)

    def _add(self, name: str, created_s: float) -> Pod:
        self._pods[name] = pod = {
            "metadata": {
                "name": name,
                "uid": name,
                "creationTimestamp": time_text(created_s),
                "labels": {REVISION: "1"},
                "annotations": {},
            },
            "spec": {"nodeName": "node"},
            "status": {"phase": "Running", "conditions": []},
        }
        self.has_changed = True
        return pod

    def _set(self, pod: Pod, condition: str, is_true: bool, now_s: float) -> None:
        status = "True" if is_true else "False"
        conditions = pod["status"]["conditions"]
        found = next((one for one in conditions if one["type"] == condition), None)
        if found is not None and found["status"] == status:
            return
        if found is None:
            found = {"type": condition}
            conditions.append(found)
        found.update(status=status, lastTransitionTime=time_text(now_s))
        self.has_changed = True


def _rank(pod: Pod) -> tuple[object, ...]:
    """The order of deletion: standing, then deletion cost, then the latest ready, then the latest
    created (kubernetes/pkg/controller, ActivePodsWithRanks, with exact times)."""
    view = pod_view(pod, None)
    return view.standing, view.deletion_cost or 0, -_since(pod), -view.created


def _since(pod: Pod) -> float:
    """When it became ready; 0 if it is not."""
    view = pod_view(pod, None)
    return (view.ready_since or 0.0) if _is(pod, _READY) else 0.0


def _is(pod: Pod, condition: str) -> bool:
    conditions = pod["status"]["conditions"]
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def _is_deleted(pod: Pod) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _end_s(pod: Pod) -> float:
    """When its grace period is over."""
    return float(pod["end_s"])
