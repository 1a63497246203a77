"""Simulates the rest of a cluster: a Deployment controller, a kubelet, workers with heartbeats.

Pods are created and deleted as by Kubernetes 1.20: a new template is rolled out one pod at a time;
if there are too many pods, unready ones are deleted first (deletion costs are ignored). A pod is
Ready if its containers and its gate are. Pods of a deleted Deployment are deleted. A deleted pod
stays for its hand-off by the worker's own rule. All calls go to the real API server and a real
Redis.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import xxhash

from pando_fleet.records.marks import Marks
from pando_fleet.redis.client import FleetUnavailable, RedisClient
from pando_fleet.registry.adapter import Adapter
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_operator.kube.client import Kube
from pando_operator.kube.errors import Conflict, KubeError, NotFound
from pando_operator.kube.resources import DEPLOYMENTS, PODS, Key, Object, key_of
from pando_worker.server.process.departure import handed_off
from tests.operator.api_server import ApiServer
from tests.operator.lifecycle.deployment_model import Deployment

STEP_S = 0.05
CAPACITY = 10_000
GATE = "pando.dev/serving"
_numbers = itertools.count()


@dataclass(slots=True)
class Worker:
    """A pod's process, as it reports itself; a test sets its load."""

    pod: str
    pool: str  # as its variable says
    incarnation: str
    ready: bool = True
    ends: "asyncio.Task[None] | None" = None  # its hand-off, after its pod is deleted
    pinned: int = 0
    running: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    url: str = ""
    slots: int = 0  # for adapters
    adapters: dict[str, Adapter] = field(default_factory=dict)


@dataclass(slots=True)
class Cluster:
    server: ApiServer
    kube: Kube
    redis: RedisClient
    namespace: str
    starts_ready: bool = True  # whether workers of new pods start ready
    workers: dict[str, Worker] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)  # "+pod" and "-pod"
    replicas_seen: list[int] = field(default_factory=list)  # of the Deployment, in order
    beats: bool = True
    ignored: set[str] = field(default_factory=set)  # pods that no Deployment made
    dead: set[str] = field(default_factory=set)  # pods whose nodes are gone
    silent: set[str] = field(default_factory=set)  # pods that cannot reach Redis
    made: Callable[[Worker], None] = lambda worker: None  # called for each new worker
    node: str = "node"  # of new pods
    placeless: set[str] = field(default_factory=set)  # images whose pods fit no node
    _deployments: dict[str, Deployment] = field(default_factory=dict)  # by uid
    _templates: dict[str, Object] = field(default_factory=dict)  # by revision
    _owners: dict[str, str] = field(default_factory=dict)  # pod name to uid of its Deployment

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            # The test broke something and will mend it, or the API server answered too late.
            with suppress(KubeError, FleetUnavailable, OSError):
                await self.step()
            await asyncio.sleep(STEP_S)

    async def step(self) -> None:
        deployments, _ = await self.kube.list(DEPLOYMENTS, self.namespace)
        pods = [pod for pod in await self.pods() if key_of(pod).name not in self.ignored]
        # A call whose answer was lost may have had its effect: go by the pods that exist.
        for name in self.workers.keys() - {key_of(pod).name for pod in pods}:
            await self._gone(name)
        for deployment in deployments:
            name = deployment["metadata"]["name"]
            mine = [pod for pod in pods if pod["metadata"]["labels"]["pando.dev/pool"] == name]
            await self._follow(deployment, mine)
        uids = {deployment["metadata"]["uid"] for deployment in deployments}
        for pod in pods:
            if key_of(pod).name in self.dead:
                continue
            owner = self._owners.get(key_of(pod).name)
            if "deletionTimestamp" in pod["metadata"] or (owner and owner not in uids):
                await self._end(pod)
            else:
                await self._live(pod)

    def busy(self, pinned: int, **more: Any) -> None:
        """Set the pinned tokens of each worker, of CAPACITY."""
        for worker in self.workers.values():
            worker.pinned = pinned
            for name, value in more.items():
                setattr(worker, name, value)

    async def pods(self) -> list[Object]:
        return (await self.kube.list(PODS, self.namespace))[0]

    async def die(self, name: str) -> None:
        """A pod whose node is lost: it is gone at once."""
        await self._delete(Key(self.namespace, name))

    async def _follow(self, deployment: Object, pods: list[Object]) -> None:
        wanted = deployment["spec"]["replicas"]
        if self.replicas_seen[-1:] != [wanted]:
            self.replicas_seen.append(wanted)
        template, uid = deployment["spec"]["template"], deployment["metadata"]["uid"]
        revision = xxhash.xxh3_64_hexdigest(msgspec.json.encode(template))[:10]
        self._templates[revision] = template
        made = Deployment(wanted, revision, time.time())
        controller = self._deployments.setdefault(uid, made)
        controller.replicas = wanted
        if not deployment["spec"].get("paused"):
            controller.template = revision
        sets: dict[str, list[Object]] = {}
        for pod in pods:
            if key_of(pod).name not in self._owners:
                self._made(pod, uid)
            if "deletionTimestamp" not in pod["metadata"]:
                labels = pod["metadata"]["labels"]
                sets.setdefault(labels["pod-template-hash"], []).append(pod)
        controller.sync(lambda one: sum(map(_is_ready, sets.get(one, ()))), time.time())
        for one in controller.sets.values():
            mine = sorted(sets.get(one.revision, ()), key=_standing)
            for pod in mine[: max(0, len(mine) - one.size)]:
                await self.kube.delete(PODS, key_of(pod))
            for _ in range(one.size - len(mine)):
                await self._create(deployment, one.revision)

    async def _create(self, deployment: Object, revision: str) -> None:
        template = self._templates[revision]
        name = f"{deployment['metadata']['name']}-{next(_numbers)}"
        labels = template["metadata"]["labels"] | {"pod-template-hash": revision}
        spec = dict(template["spec"])
        if spec["containers"][0]["image"] not in self.placeless:
            spec["nodeName"] = self.node
        body = {"metadata": template["metadata"] | {"name": name, "labels": labels}, "spec": spec}
        body["metadata"]["namespace"] = self.namespace
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": revision,
            "controller": True,
        }
        body["metadata"]["ownerReferences"] = [owner | {"uid": deployment["metadata"]["uid"]}]
        self._made(await self.kube.create(PODS, body), deployment["metadata"]["uid"])

    def _made(self, pod: Object, owner: str) -> None:
        """Start its worker, if it has a node."""
        name = key_of(pod).name
        self.log.append(f"+{name}")
        self._owners[name] = owner
        if "nodeName" in pod["spec"]:
            self.workers[name] = worker = Worker(
                name, _pool(pod), f"i{name}", ready=self.starts_ready
            )
            self.made(worker)

    async def _end(self, pod: Object) -> None:
        """The work of worker and kubelet for a deleted pod."""
        key = key_of(pod)
        worker = self.workers.get(key.name)
        if worker is not None:
            if worker.ends is None:
                stays = handed_off(Marks(self.redis, worker.pool), key.name)
                worker.ends = asyncio.create_task(asyncio.wait_for(stays, 20))
            if worker.running or not worker.ends.done():
                await self._beat(worker)
                return
        await self._delete(key)

    async def _delete(self, key: Key) -> None:
        # No kubelet here confirms a graceful end.
        path, at_once = PODS.path(key.namespace, key.name), {"gracePeriodSeconds": 0}
        await asyncio.to_thread(self.server.call, "DELETE", path, at_once)
        await self._gone(key.name)

    async def _gone(self, name: str) -> None:
        if (line := f"-{name}") not in self.log:
            self.log.append(line)
        worker = self.workers.pop(name, None)
        if worker is not None:
            await Registry(self.redis).leave(worker.pool, worker.pod, worker.incarnation)

    async def _live(self, pod: Object) -> None:
        """Kubelet and worker."""
        name = pod["metadata"]["name"]
        worker = self.workers.get(name)
        if worker is None:
            return
        await self._set_conditions(pod, worker)
        if self.beats and name not in self.silent:
            await self._beat(worker)

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

    async def lose(self, name: str) -> None:
        """The pod's node is gone; Kubernetes takes back the condition Ready alone."""
        self.dead.add(name)
        key = Key(self.namespace, name)
        body = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        kind: Any = "strategic-merge"
        await self.kube.patch(
            PODS, key, body, manager="node-controller", kind=kind, subresource="status"
        )

    async def _beat(self, worker: Worker) -> None:
        beat = Heartbeat(
            replica=worker.pod,
            incarnation=worker.incarnation,
            url=worker.url or f"http://{worker.pod}:30000",
            model="m",
            state=_state(worker),
            capacity_tokens=CAPACITY,
            pinned_tokens=worker.pinned,
            running=worker.running,
            waiting=worker.waiting,
            waiting_tokens=worker.waiting_tokens,
            adapters=tuple(worker.adapters),
            adapter_states=tuple(worker.adapters.values()),
            adapter_slots=worker.slots,
        )
        await Registry(self.redis).beat(worker.pool, beat)


def _pool(pod: Object) -> str:
    """The pool that its worker joins."""
    (container,) = pod["spec"]["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    return str(variables["PANDO_WORKER_POOL"])


def _state(worker: Worker) -> ReplicaState:
    if worker.ends is not None:
        return ReplicaState.DRAINING
    return ReplicaState.READY if worker.ready else ReplicaState.STARTING


def _standing(pod: Object) -> tuple[bool, bool, int]:
    """The order of deletion; among equals, the order is by age."""
    number = int(pod["metadata"]["name"].rpartition("-")[2])
    return "nodeName" in pod["spec"], _is_ready(pod), -number


def _condition(pod: Object, kind: str) -> str:
    found = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions") or ()}
    return str(found.get(kind, ""))


def _is_ready(pod: Object) -> bool:
    return _condition(pod, "Ready") == "True"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
