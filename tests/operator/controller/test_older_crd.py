"""An operator that is newer than the CRD: the server drops what the CRD does not know."""

from collections.abc import Iterator
from copy import deepcopy

import pytest

from pando_operator.kube.resources import WORKER_POOLS, Object
from tests.operator.api_server import ApiServer
from tests.operator.controller.conftest import FAST, Scene
from tests.operator.front import Front

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workerpools.pando.dev"
UNKNOWN = "updatedReplicas"


@pytest.fixture
def older_crd(api_server: ApiServer, crds: None) -> Iterator[None]:
    """Without a field of the status, for one test."""
    current: Object = api_server.call("GET", PATH)
    older = deepcopy(current)
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"][UNKNOWN]
    api_server.call("PUT", PATH, older)
    yield
    now = api_server.call("GET", PATH)
    api_server.call("PUT", PATH, now | {"spec": current["spec"]})


async def test_a_stable_pool_causes_no_writes_under_an_older_crd(
    scene: Scene, older_crd: None, front: Front
) -> None:
    async def is_pruned() -> bool:
        await scene.kube.apply(
            WORKER_POOLS,
            {
                "metadata": {"name": "probe", "namespace": scene.namespace},
                "spec": {"model": "m"},
                "status": {},
            },
            manager="probe",
        )
        key = scene.key("probe")
        status = {"status": {UNKNOWN: 1}}
        answer = await scene.kube.patch(
            WORKER_POOLS, key, status, manager="probe", subresource="status"
        )
        await scene.kube.delete(WORKER_POOLS, key)
        return UNKNOWN not in answer["status"]

    await scene.until(is_pruned, "the server has the older CRD")
    async with scene.operator(kubeconfig=str(scene.server.kubeconfig(server=front.url))) as running:
        looks = running.operator.metrics.reconciles.labels(scene.namespace, "pool", "ok")
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=1)
        await scene.serving(1)
        before = len(front.writes("/workerpools/pool/status"))
        count = looks._value.get()
        await scene.until(lambda: looks._value.get() >= count + 6, "it looks six times")
        # A fact may still have settled after the pool served.
        assert len(front.writes("/workerpools/pool/status")) - before <= 2
