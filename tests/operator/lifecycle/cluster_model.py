"""A small model of the lifecycle's world: a Deployment, kubelets, routers, marks in Redis.

Kubernetes' order of deletion is written here independently, with and without deletion cost. Time
advances only by `pass_time`.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime

from pando_fleet.records.marks import Mark, MarkKind, MarkState
from pando_operator.lifecycle.actions import (
    Action,
    Annotate,
    ClearMark,
    SetGate,
    SetMark,
    SetReplicas,
)
from pando_operator.lifecycle.pods import DELETION_COST, DRAIN, HAND_OFF, PodView, Standing
from pando_operator.resource.scaling import Scaling
from tests.operator.lifecycle.deployment_model import Deployment


@dataclass
class Pod:
    name: str
    created: float
    revision: str = "one"
    is_assigned: bool = False
    is_running: bool = False
    containers_ready: bool = False
    ready_since: float | None = None
    gate: bool = False
    is_ready: bool = False  # as the kubelet has written it
    deleting: bool = False
    requests: int = 0
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def standing(self) -> Standing:
        if not self.is_assigned:
            return Standing.UNASSIGNED
        if not self.is_running:
            return Standing.PENDING
        return Standing.READY if self.is_ready else Standing.UNREADY

    @property
    def drained_at(self) -> float | None:
        text = self.annotations.get(DRAIN)
        return datetime.fromisoformat(text).timestamp() if text else None

    def view(self, template: str) -> PodView:
        cost = self.annotations.get(DELETION_COST)
        return PodView(
            name=self.name,
            uid=self.name,
            created=self.created,
            standing=self.standing,
            containers_ready=self.containers_ready,
            gate=self.gate,
            deleting=self.deleting,
            revision=self.revision,
            outdated=self.revision != template,
            ready_since=self.ready_since,
            draining_since=self.drained_at,
            handed_off=HAND_OFF in self.annotations,
            deletion_cost=int(cost) if cost else None,
            requests=self.requests if self.containers_ready else None,
        )


class Cluster:
    def __init__(self, size: int, scaling: Scaling, *, knows_cost: bool) -> None:
        self.scaling = scaling
        self.knows_cost = knows_cost
        self.now = 1_700_000_000.0
        self.deployment = Deployment(size, "one", self.now)
        self.broken: set[str] = set()  # revisions whose pods never serve
        self.pods: dict[str, Pod] = {}
        self.marks: dict[tuple[MarkKind, str], Mark] = {}
        self.cut = 0  # requests that were running on pods when Kubernetes had to delete them
        self.wrong: list[str] = []
        self._names = 0
        self._random = random.Random(0)

    # Kubernetes' own actions.

    @property
    def replicas(self) -> int:
        return self.deployment.replicas

    def alive(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if not pod.deleting]

    def of(self, revision: str) -> list[Pod]:
        return [pod for pod in self.alive() if pod.revision == revision]

    def available(self, revision: str) -> int:
        return sum(pod.is_ready for pod in self.of(revision))

    def controllers(self) -> None:
        """One round of the Deployment controller and of each ReplicaSet's controller."""
        step = self.deployment.sync(self.available, self.now)
        new = self.deployment.template
        for one in list(self.deployment.sets.values()):
            order = self.deletion_order(one.revision)
            for pod in order[: max(0, len(order) - one.size)]:
                if step == "roll" and one.revision != new and self._is_stuck():
                    # No new pod replaces it, so the reason is that `replicas` was lowered.
                    self._check_leaves(pod)
                pod.deleting = True
            for _ in range(one.size - len(order)):
                self._names += 1
                name = f"pod-{self._names}"
                self.pods[name] = Pod(name, self.now, one.revision)

    def _is_stuck(self) -> bool:
        new = self.deployment.template
        return bool(self.of(new)) and not self.available(new)

    def deletion_order(self, revision: str) -> list[Pod]:
        """The live pods in the order of deletion; ties are random."""

        def rank(pod: Pod) -> tuple[float, ...]:
            cost = int(pod.annotations.get(DELETION_COST, 0)) if self.knows_cost else 0
            return pod.standing, cost, self._random.random()

        return sorted(self.of(revision), key=rank)

    def kubelets(self) -> None:
        """One step of every pod: assigned, running; deleted ones end when nothing runs there."""
        for pod in list(self.pods.values()):
            if pod.deleting:
                if not pod.requests:
                    del self.pods[pod.name]
                continue
            pod.is_running = pod.is_assigned
            pod.is_assigned = True
            pod.is_ready = pod.containers_ready and pod.gate

    def load_models(self, unseen: Collection[str] = ()) -> None:
        """Loading takes longer than a watch lags: pods that it has not shown yet do not finish."""
        for pod in self.alive():
            if pod.revision in self.broken or pod.name in unseen:
                continue
            if pod.is_running and not pod.containers_ready:
                pod.containers_ready, pod.ready_since = True, self.now

    def crash(self, pod: Pod) -> None:
        """The container and its requests end, and it starts again."""
        pod.containers_ready = pod.is_ready = False
        pod.ready_since = None
        pod.requests = 0

    # Actions of routers and clients.

    def withheld(self, pod: Pod) -> bool:
        kinds = (MarkKind.DRAIN, MarkKind.WARM)
        marks = [self.marks.get((kind, pod.name)) for kind in kinds]
        return any(mark is not None and not mark.is_over for mark in marks)

    def takers(self) -> list[Pod]:
        """Pods where a router may place a request, by heartbeats and marks, not by gates."""
        return [p for p in self.alive() if p.containers_ready and not self.withheld(p)]

    def end_request(self, pod: Pod) -> None:
        pod.requests = max(0, pod.requests - 1)

    def finish_marks(self) -> None:
        """Routers carry out marks."""
        for key, mark in self.marks.items():
            pod = self.pods.get(mark.replica)
            if mark.kind is not MarkKind.DRAIN and pod and pod.containers_ready:
                self.marks[key] = replace(mark, state=MarkState.DONE)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for key, mark in list(self.marks.items()):
            left_ms = mark.left_ms - int(seconds * 1000)
            if left_ms < -600_000:
                del self.marks[key]
            else:
                self.marks[key] = replace(mark, left_ms=left_ms)

    # Actions of the operator.

    def views(self) -> list[PodView]:
        return [self.view(pod) for pod in self.pods.values()]

    def view(self, pod: Pod) -> PodView:
        return pod.view(self.deployment.template)

    def execute(self, action: Action, target: int) -> None:
        match action:
            case SetMark(kind, replica, lasts_ms, budget):
                self._set_mark(kind, replica, lasts_ms, budget)
            case ClearMark(kind, replica):
                self.marks.pop((kind, replica), None)
            case Annotate(name, _, annotations):
                if pod := self.pods.get(name):
                    for key, value in annotations:
                        if value is None:
                            pod.annotations.pop(key, None)
                        else:
                            pod.annotations[key] = value
            case SetGate(name, _, is_open):
                if pod := self.pods.get(name):
                    pod.gate = is_open
            case SetReplicas(count):
                self._set_replicas(count, target)

    def _set_mark(self, kind: MarkKind, replica: str, lasts_ms: int, budget: int) -> None:
        before = self.marks.get((kind, replica))
        if before is None or before.is_over or kind is MarkKind.DRAIN:
            self.marks[kind, replica] = Mark(
                kind=kind,
                replica=replica,
                budget_tokens=budget,
                left_ms=lasts_ms,
                state=MarkState.OPEN,
                router="",
                tokens=0,
                prefixes=0,
                reason="",
            )

    def _set_replicas(self, count: int, target: int) -> None:
        """Also checks the pods that Kubernetes might delete, as ties of rank are random."""
        if count < target:
            self.wrong.append(f"replicas {count} below the target {target}")
        if count < self.replicas:
            for revision, size in self.deployment.scaled(count).items():
                order = self.deletion_order(revision)
                for pod in order[: max(0, len(order) - size)]:
                    self._check_leaves(pod)
        self.deployment.replicas = count

    def _check_leaves(self, pod: Pod) -> None:
        since = pod.drained_at
        is_late = since is not None and self.now - since >= self.scaling.drain.timeout_seconds
        if pod.requests and not is_late:
            self.wrong.append(f"{pod.name} would go with {pod.requests} requests")
        if pod.containers_ready and since is None:
            self.wrong.append(f"{pod.name} would go though it could serve and was not drained")
        if pod.containers_ready and pod in self.takers():
            self.wrong.append(f"{pod.name} would go while routers place requests there")
