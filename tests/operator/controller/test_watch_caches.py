"""What the operator knows of the cluster follows labels that people change."""

import asyncio
from copy import deepcopy

from pando_operator.controller.observing.watch_caches import WatchCaches
from pando_operator.kube.client import Kube
from pando_operator.kube.resources import PODS, Key, Object, disruption_budgets
from tests.operator.api_server import ApiServer
from tests.operator.pool_crd import install
from tests.waiting import until_async


def replica(namespace: str) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u"}
    return {
        "metadata": {
            "name": "p",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "pando-worker", "pando.dev/pool": "a"},
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {"containers": [{"name": "worker", "image": "worker:1"}]},
    }


async def test_a_pod_without_its_label_or_with_another_leaves_its_pool(
    api_server: ApiServer, kube: Kube, namespace: str
) -> None:
    """The answer to a write of the operator shows that before the watch does."""
    install(api_server)
    woken: list[Key] = []
    budgets = disruption_budgets(await kube.minor())
    caches = WatchCaches(kube, (namespace,), woken.append, lambda _: None, budgets)
    running = asyncio.create_task(caches.run())
    a, b = Key(namespace, "a"), Key(namespace, "b")
    try:
        await kube.create(PODS, replica(namespace))
        await until_async(lambda: caches.pods(a), "the pod is seen")
        (pod,) = caches.pods(a)
        woken.clear()
        caches.adopt(PODS, _relabelled(pod, 1, {"pando.dev/pool": "b"}))
        assert (caches.pods(a), len(caches.pods(b)), woken) == ([], 1, [a, b])
        woken.clear()
        caches.adopt(PODS, _relabelled(pod, 2, {}))
        assert (caches.pods(b), woken) == ([], [b])
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _relabelled(pod: Object, later: int, labels: dict[str, str]) -> Object:
    changed = deepcopy(pod)
    version = int(pod["metadata"]["resourceVersion"]) + later
    changed["metadata"] |= {"labels": labels, "resourceVersion": str(version)}
    return changed
