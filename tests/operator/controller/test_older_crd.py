"""An operator that is newer than the CRD, of which the server drops what it does not know; and one
that is older than the CRD, whose fields the server gives it."""

from collections.abc import Iterator
from copy import deepcopy

import pytest

from pando_operator.kube.resources import WORKER_POOLS, Object
from pando_operator.resource.parse import InvalidPool, parse, stored
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


@pytest.fixture
def newer_crd(api_server: ApiServer, crds: None) -> Iterator[None]:
    """With fields of the spec that this operator does not know, for one test."""
    current: Object = api_server.call("GET", PATH)
    newer = deepcopy(current)
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]["properties"]
    spec["surprise"] = {"type": "string", "default": "all"}
    spec["scaling"]["properties"]["speed"] = {"type": "integer", "default": 3}
    api_server.call("PUT", PATH, newer)
    yield
    now = api_server.call("GET", PATH)
    api_server.call("PUT", PATH, now | {"spec": current["spec"]})


async def test_defaults_of_a_newer_crd_make_no_pool_invalid(scene: Scene, newer_crd: None) -> None:
    """They are in every pool as soon as the CRD is upgraded, while the older operator leads."""

    async def is_newer() -> bool:
        pool = await scene.make("probe", scaling={"mode": "Manual", **FAST}, replicas=1)
        await scene.kube.delete(WORKER_POOLS, scene.key("probe"))
        return "surprise" in pool["spec"]

    await scene.until(is_newer, "the server has the newer CRD")
    async with scene.operator():
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=2)
        await scene.serving(2)
    assert any("fields of a newer CRD are ignored" in line for line in scene.said)


def test_only_unknown_fields_are_left_out() -> None:
    spec = {"model": "m", "surprise": 1, "scaling": {"mode": "Manual", "speed": {"a": [1]}}}
    schedules = [{"cron": "0 8 * * *", "durationSeconds": 60, "minReplicas": 1, "when": "x"}]
    spec["scaling"] |= {"schedules": schedules}  # type: ignore[operator]
    spec["template"] = {"labels": {"any": "label"}, "env": [{"name": "A", "news": 1}]}
    pool = {"metadata": {"name": "a"}, "spec": spec}
    parsed, newer = stored(pool)
    assert set(newer) == {
        "spec.surprise",
        "spec.scaling.speed",
        "spec.scaling.schedules[0].when",
        "spec.template.env[0].news",
    }
    assert parsed.spec.template.labels == {"any": "label"}
    assert spec["surprise"] == 1
    with pytest.raises(InvalidPool, match=r"spec\.surprise does not exist"):
        parse(pool)
    with pytest.raises(InvalidPool, match=r"spec\.replicas must be an integer"):
        stored({"metadata": {"name": "a"}, "spec": {"model": "m", "replicas": "x"}})
