"""The rest of a cluster, played: a Deployment controller, a kubelet, workers that send heartbeats.

Pods come and go as Kubernetes 1.20 would have it: of too many, those go first that are not ready
(and nothing looks at deletion costs). A pod is Ready where its containers and its gate are.
Everything goes through the real API server and a real Redis.
"""

import asyncio
import itertools
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pando_fleet import FleetUnavailable, Heartbeat, RedisClient, Registry, ReplicaState
from pando_operator.controller.cancelled import check_cancelled
from pando_operator.kube.client import Kube
from pando_operator.kube.errors import Conflict, KubeError, NotFound
from pando_operator.kube.resources import DEPLOYMENTS, PODS, Key, Object, key_of
from tests.operator.api_server import ApiServer

STEP_S = 0.05
CAPACITY = 10_000
GATE = "pando.dev/serving"
_numbers = itertools.count()


@dataclass(slots=True)
class Worker:
    """What a pod's process says of itself; a test sets its load."""

    pod: str
    incarnation: str
    ready: bool = True
    pinned: int = 0
    running: int = 0
    waiting: int = 0
    waiting_tokens: int = 0


@dataclass(slots=True)
class Cluster:
    server: ApiServer
    kube: Kube
    redis: RedisClient
    namespace: str
    starts_ready: bool = True  # workers of new pods
    workers: dict[str, Worker] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)  # "+pod" and "-pod"
    replicas_seen: list[int] = field(default_factory=list)  # of the Deployment, as they changed
    beats: bool = True
    ignored: set[str] = field(default_factory=set)  # pods that no Deployment made

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            check_cancelled()
            with suppress(KubeError, FleetUnavailable):  # the test broke something, and mends it
                await self.step()
            await asyncio.sleep(STEP_S)

    async def step(self) -> None:
        deployments, _ = await self.kube.list(DEPLOYMENTS, self.namespace)
        pods = [pod for pod in await self.pods() if key_of(pod).name not in self.ignored]
        for deployment in deployments:
            name = deployment["metadata"]["name"]
            mine = [pod for pod in pods if pod["metadata"]["labels"]["pando.dev/pool"] == name]
            await self._follow(deployment, mine)
        for pod in pods:
            await self._live(pod)

    def busy(self, pinned: int, **more: Any) -> None:
        """So many tokens are pinned on each worker, of CAPACITY."""
        for worker in self.workers.values():
            worker.pinned = pinned
            for name, value in more.items():
                setattr(worker, name, value)

    async def pods(self) -> list[Object]:
        return (await self.kube.list(PODS, self.namespace))[0]

    async def _follow(self, deployment: Object, pods: list[Object]) -> None:
        wanted = deployment["spec"]["replicas"]
        if self.replicas_seen[-1:] != [wanted]:
            self.replicas_seen.append(wanted)
        for _ in range(wanted - len(pods)):
            await self._create(deployment)
        if len(pods) > wanted:
            ranked = sorted(pods, key=lambda pod: (_is_ready(pod), -next(_numbers)))
            for pod in ranked[: len(pods) - wanted]:
                await self._delete(key_of(pod))

    async def _create(self, deployment: Object) -> None:
        template = deployment["spec"]["template"]
        name = f"{deployment['metadata']['name']}-{next(_numbers)}"
        labels = template["metadata"]["labels"] | {"pod-template-hash": "h1"}
        spec = template["spec"] | {"nodeName": "node"}
        body = {"metadata": template["metadata"] | {"name": name, "labels": labels}, "spec": spec}
        body["metadata"]["namespace"] = self.namespace
        await self.kube.create(PODS, body)
        self.log.append(f"+{name}")
        self.workers[name] = Worker(name, f"i{name}", ready=self.starts_ready)

    async def _delete(self, key: Key) -> None:
        # There is no kubelet that would confirm a graceful end.
        path, at_once = PODS.path(key.namespace, key.name), {"gracePeriodSeconds": 0}
        await asyncio.to_thread(self.server.call, "DELETE", path, at_once)
        self.log.append(f"-{key.name}")
        worker = self.workers.pop(key.name)
        pool = key.name.rpartition("-")[0]
        await Registry(self.redis).leave(pool, worker.pod, worker.incarnation)

    async def _live(self, pod: Object) -> None:
        """Kubelet and worker."""
        name = pod["metadata"]["name"]
        worker = self.workers.get(name)
        if worker is None:
            return
        await self._set_conditions(pod, worker)
        if self.beats:
            await self._beat(name.rpartition("-")[0], worker)

    async def _set_conditions(self, pod: Object, worker: Worker) -> None:
        gate = _condition(pod, GATE) == "True"
        wanted = {"ContainersReady": worker.ready, "Ready": worker.ready and gate}
        new = [
            {"type": kind, "status": str(value), "lastTransitionTime": _now()}
            for kind, value in wanted.items()
            if _condition(pod, kind) != str(value)
        ]
        if new:
            body = {"status": {"phase": "Running", "conditions": new}}
            try:
                await self.kube.patch(
                    PODS,
                    key_of(pod),
                    body,
                    manager="kubelet",
                    kind="strategic-merge",
                    subresource="status",
                )
            except (NotFound, Conflict):
                return

    async def _beat(self, pool: str, worker: Worker) -> None:
        beat = Heartbeat(
            replica=worker.pod,
            incarnation=worker.incarnation,
            url=f"http://{worker.pod}:30000",
            model="m",
            state=ReplicaState.READY if worker.ready else ReplicaState.STARTING,
            capacity_tokens=CAPACITY,
            pinned_tokens=worker.pinned,
            running=worker.running,
            waiting=worker.waiting,
            waiting_tokens=worker.waiting_tokens,
        )
        await Registry(self.redis).beat(pool, beat)


def _condition(pod: Object, kind: str) -> str:
    found = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions") or ()}
    return str(found.get(kind, ""))


def _is_ready(pod: Object) -> bool:
    return _condition(pod, "Ready") == "True"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
