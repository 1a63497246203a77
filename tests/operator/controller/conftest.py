"""The operator with a real API server and a real Redis; the rest of the cluster is simulated."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

import pytest
import redis

from pando_fleet.redis.client import connect
from pando_operator.kube.client import Kube
from pando_operator.kube.configuration import load_configuration
from pando_operator.kube.resources import EVENTS, WORKER_POOLS, Key, Object, key_of
from pando_operator.operator import Operator
from pando_operator.settings import OperatorSettings
from tests.operator.api_server import ApiServer
from tests.operator.controller.cluster import Cluster
from tests.operator.pool_crd import install
from tests.waiting import PATIENCE_S, pauses

# No waiting times, so that tests take seconds.
FAST: dict[str, Any] = {
    "minReplicas": 1,
    "maxReplicas": 5,
    "behavior": {
        "scaleUp": {"policies": [{"type": "Pods", "value": 5, "periodSeconds": 1}]},
        "scaleDown": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 5, "periodSeconds": 1}],
        },
    },
    "warm": {"tokens": 0},
    "drain": {"timeoutSeconds": 20, "handOffTokens": 0},
}


class Scene:
    """One test's world: its namespace, cluster and operators."""

    def __init__(
        self, server: ApiServer, kube: Kube, cluster: Cluster, redis_url: str, namespace: str
    ) -> None:
        self.server, self.kube, self.cluster = server, kube, cluster
        self.redis_url, self.namespace = redis_url, namespace
        self.redis = cluster.redis
        self.said: list[str] = []  # messages of the operators' logs
        self.running: list[asyncio.Task[None]] = []  # the simulated cluster and the operators
        self.closing = ExitStack()  # what a test leaves outside its namespace

    def key(self, name: str = "pool") -> Key:
        return Key(self.namespace, name)

    def sync_redis(self) -> "redis.Redis":
        """A synchronous client, for callbacks."""
        return redis.Redis.from_url(self.redis_url)

    async def make(self, name: str = "pool", **spec: Any) -> Object:
        body = {
            "apiVersion": WORKER_POOLS.api_version,
            "kind": WORKER_POOLS.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"model": "org/m", "scaling": {"mode": "Auto", **FAST}} | spec,
        }
        return await self.kube.create(WORKER_POOLS, body)

    async def change(self, name: str = "pool", **spec: Any) -> Object:
        body = {"spec": spec}
        return await self.kube.patch(WORKER_POOLS, self.key(name), body, manager="user")

    async def status(self, name: str = "pool") -> Object:
        status: Object = (await self.kube.get(WORKER_POOLS, self.key(name))).get("status", {})
        return status

    async def condition(self, kind: str, name: str = "pool") -> Object:
        conditions = (await self.status(name)).get("conditions", ())
        found: Object = next((one for one in conditions if one["type"] == kind), {})
        return found

    async def events(self, reason: str) -> list[Object]:
        events, _ = await self.kube.list(EVENTS, self.namespace)
        return [event for event in events if event["reason"] == reason]

    async def event(self, reason: str) -> Object:
        """The only event with this reason; waits for it, as a status is written before its
        events."""
        (event,) = await self.until(lambda: self.events(reason), f"an event {reason}")
        assert isinstance(event, dict)
        return event

    async def until(
        self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S
    ) -> Any:
        """Wait for `condition`, which may be a coroutine function. Fails with `what`, the pods and
        the pool's status, or with the error that ended an operator or the cluster."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        for pause in pauses():
            for task in self.running:
                if task.done() and not task.cancelled():
                    error = task.exception()
                    raise AssertionError(f"{task.get_name()} has ended: {what}") from error
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            if loop.time() > deadline:
                break
            await asyncio.sleep(pause)
        pools, _ = await self.kube.list(WORKER_POOLS, self.namespace)
        seen = {key_of(pool).name: pool.get("status") for pool in pools}
        pods = {key_of(pod).name: pod.get("status") for pod in await self.cluster.pods()}
        raise AssertionError(
            f"not true after {seconds} s: {what}; {self.said}; {seen}; {pods}; {self.cluster.log}"
        )

    async def serving(self, count: int, name: str = "pool") -> None:
        async def is_so() -> bool:
            status = await self.status(name)
            return bool(
                status.get("readyReplicas") == count
                and status.get("replicas") == count
                and not status.get("drainingReplicas")
            )

        await self.until(is_so, f"{count} replicas serve")

    @asynccontextmanager
    async def operator(self, *, kubeconfig: str = "", **settings: Any) -> AsyncIterator["Running"]:
        given: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": 0,
            "redis": self.redis_url,
            "namespaces": (self.namespace,),
            "lease_namespace": self.namespace,
            "lease_duration": 3.0,
            "lease_renew": 2.0,
            "lease_retry": 0.2,
            "identity": "operator-0",
            "period": 0.5,
            "busy_period": 0.1,
        }
        path = kubeconfig or str(self.server.kubeconfig())
        operator = Operator(
            OperatorSettings(**given | settings), Kube(await load_configuration(path), timeout_s=3)
        )
        async with AsyncExitStack() as closing:
            closing.push_async_callback(operator.close)
            await operator.listen(closing)
            task = asyncio.create_task(operator.lead(), name="an operator")
            self.running.append(task)
            running = Running(operator, task)
            try:
                yield running
            finally:
                self.running.remove(task)
                await running.stop()


async def draining(scene: Scene) -> list[str]:
    """Pods that are annotated as leaving."""
    return [
        pod["metadata"]["name"]
        for pod in await scene.cluster.pods()
        if "pando.dev/draining-since" in pod["metadata"].get("annotations", {})
    ]


class Said(logging.Handler):
    """Collects an operator's log messages, for the report of a failed test."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        about = [str(getattr(record, name, "")) for name in ("error", "action")]
        self._said.append(" ".join(filter(None, (record.getMessage(), *about))))


class Running:
    def __init__(self, operator: Operator, task: asyncio.Task[None]) -> None:
        self.operator, self.task = operator, task

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture(scope="session")
def crds(api_server: ApiServer) -> None:
    install(api_server)


@pytest.fixture
async def scene(
    api_server: ApiServer, crds: None, kube: Kube, namespace: str, valkey_url: str
) -> AsyncIterator[Scene]:
    redis = connect(valkey_url)
    cluster = Cluster(api_server, kube, redis, namespace)
    scene = Scene(api_server, kube, cluster, valkey_url, namespace)

    def served() -> bool:
        path = f"/apis/pando.dev/v1alpha1/namespaces/{namespace}/workerpools"
        try:
            return bool(api_server.call("GET", path))
        except OSError:
            return False

    await scene.until(served, "the API server serves WorkerPools")
    handler = Said(scene.said)
    logging.getLogger("pando.operator").addHandler(handler)
    playing = asyncio.create_task(cluster.run(), name="the played cluster")
    scene.running.append(playing)
    try:
        yield scene
    finally:
        logging.getLogger("pando.operator").removeHandler(handler)
        scene.closing.close()
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        await redis.aclose()
