"""Replicas that are lost, cut off or never come keep no pool from what it should do."""

import time
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import POOL
from tests.cluster.kube import Cluster, Object, is_ready, name_of, stages, wait_until
from tests.cluster.load import LoadPod
from tests.cluster.node import Node
from tests.cluster.release import CHAT_POOL, NAME, image

pytestmark = pytest.mark.long

SCALING = CHAT_POOL["scaling"]
STEP_S = 120
NOTICED_S = 90.0
"""Kubernetes itself takes 40 s to see that a node is gone."""
SILENT_S = 600
"""Within which a pool shrinks past a replica of which nobody hears."""


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Node]:
    node = Node(cluster, image("operator"))
    node.mend()
    yield node
    node.mend()


def test_a_pool_whose_node_is_gone_is_not_ready(cluster: Cluster, node: Node) -> None:
    _manual(cluster, 2)
    node.dies(POOL, NOTICED_S + 15)
    wait_until("no replica counts", lambda: _counts(cluster) == ("False", 0), NOTICED_S)
    node.mend()
    wait_until(
        "both are back",
        lambda: _counts(cluster) == ("True", 2),
        STEP_S,
        moving=lambda: stages(cluster.workers(POOL)),
    )


@pytest.mark.timeout(900)
def test_a_replica_that_cannot_reach_redis_keeps_no_pool_from_shrinking(
    cluster: Cluster, node: Node
) -> None:
    _manual(cluster, 3)
    silent = name_of(cluster.workers(POOL)[0])
    service = cluster.get(f"/api/v1/namespaces/{{namespace}}/services/{NAME}-redis")
    pods = cluster.component("redis")
    node.cut_off(silent, [service["spec"]["clusterIP"], *(p["status"]["podIP"] for p in pods)])
    node.mend()
    ends = time.monotonic() + SILENT_S

    def named() -> bool:
        degraded = _condition(cluster, "Degraded")
        return degraded["reason"] == "ReplicaSilent" and silent in degraded["message"]

    wait_until("the status names it", named, SILENT_S)
    cluster.patch_pool(POOL, {"scaling": SCALING | {"mode": "Auto"}})
    left_s = ends - time.monotonic()
    wait_until("one replica is left", lambda: len(cluster.workers(POOL)) == 1, left_s)
    assert silent not in map(name_of, cluster.workers(POOL))


@pytest.fixture
def crowded(cluster: Cluster) -> Iterator[None]:
    """One replica that runs one request at a time, and that fits its node once; this cluster has
    one node."""
    once = {
        "labelSelector": {"matchLabels": {"fits": "once"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [once]}}
    _rolls(cluster, {"labels": {"fits": "once"}, "affinity": apart}, running=1)
    yield
    _rolls(cluster, {"labels": None, "affinity": None}, running=None)


def test_a_pool_grows_past_a_pod_that_fits_no_node(
    cluster: Cluster, load: LoadPod, crowded: None
) -> None:
    waits = SCALING | {"mode": "Auto", "target": {"pressure": 1, "queueWaitSeconds": 0.05}}
    cluster.patch_pool(POOL, {"scaling": waits})
    load.set(8, words=400, max_tokens=200)
    wait_until("a second is asked for", lambda: len(cluster.workers(POOL)) == 2, STEP_S)
    wait_until("and a third", lambda: len(cluster.workers(POOL)) == 3, 2 * STEP_S)
    assert _counts(cluster)[1] == 1

    def last_reason() -> str:
        return str(cluster.pool_status(POOL)["decisions"][0]["reason"])

    wait_until("the status says why", lambda: "requests wait" in last_reason(), STEP_S)


def _rolls(cluster: Cluster, template: Object, running: int | None) -> None:
    """Change the template of a pool of one replica."""
    target = SCALING["target"] | {"queueWaitSeconds": None}
    spec = {
        "replicas": 1,
        "engine": {"maxRunningRequests": running},
        "template": template,
        "scaling": SCALING | {"mode": "Manual", "target": target},
    }
    changed = cluster.patch_pool(POOL, spec)
    wait_until(
        "it has rolled",
        lambda: (
            _is_current(cluster, changed)
            and _counts(cluster) == ("True", 1)
            and len(cluster.workers(POOL)) == 1
        ),
        2 * STEP_S,
        moving=lambda: stages(cluster.workers(POOL)),
    )


def _manual(cluster: Cluster, replicas: int) -> None:
    cluster.patch_pool(POOL, {"replicas": replicas, "scaling": SCALING | {"mode": "Manual"}})

    def settled() -> bool:
        pods = cluster.workers(POOL)
        return len(pods) == replicas and all(map(is_ready, pods))

    wait_until("settled", settled, STEP_S, moving=lambda: stages(cluster.workers(POOL)))


def _condition(cluster: Cluster, kind: str) -> Object:
    conditions = cluster.pool_status(POOL)["conditions"]
    return next(one for one in conditions if one["type"] == kind)


def _is_current(cluster: Cluster, pool: Object) -> bool:
    ready = _condition(cluster, "Ready")
    return bool(ready["observedGeneration"] == pool["metadata"]["generation"])


def _counts(cluster: Cluster) -> tuple[str, int]:
    """The condition Ready, and how many replicas take requests."""
    status = cluster.pool_status(POOL)
    return str(_condition(cluster, "Ready")["status"]), int(status["readyReplicas"])
