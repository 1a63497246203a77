"""Refusals, and objects that belong to others, are reported; existing replicas go on."""

from typing import Any

import pytest
from aiohttp import web

from pando_operator.kube.errors import Forbidden
from pando_operator.kube.resources import DEPLOYMENTS, PODS, SERVICES, Object, Resource
from tests.operator.controller.conftest import FAST, Scene, draining
from tests.operator.front import Fault, Front

MANUAL = {"mode": "Manual", **FAST}
POLICY = '{"message": "admission webhook \\"policy\\" denied the request: not today"}'


def is_template(request: web.Request) -> bool:
    """The apply of everything except `replicas`."""
    return (
        request.method == "PATCH"
        and "/deployments/" in request.path
        and request.query.get("fieldManager") == "pando-operator"
    )


async def until_degraded(scene: Scene, reason: str) -> Object:
    async def degraded() -> bool:
        return (await scene.condition("Degraded")).get("reason") == reason

    await scene.until(degraded, f"Degraded by {reason}")
    return await scene.condition("Degraded")


async def test_the_replicas_of_a_pool_that_became_invalid_come_and_leave_as_before(
    scene: Scene,
) -> None:
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=3)
        await scene.serving(3)
        scene.cluster.busy(100, running=1)
        await scene.change(replicas=2)
        await scene.until(lambda: draining(scene), "one leaves")
        (leaving,) = await draining(scene)
        await scene.change(scaling={"minReplicas": 7})
        await until_degraded(scene, "InvalidSpec")

        scene.cluster.workers[leaving].running = 0
        await scene.until(lambda: leaving not in scene.cluster.workers, "its drain ends")
        assert scene.cluster.replicas_seen == [3, 2]
        lost = next(iter(scene.cluster.workers))
        await scene.cluster._delete(scene.key(lost))  # for example evicted

        async def replaced() -> bool:
            pods = await scene.cluster.pods()
            ready = [pod for pod in pods if is_ready(pod)]
            return len(ready) == 2 and lost not in {pod["metadata"]["name"] for pod in ready}

        await scene.until(replaced, "another one is let in")
    assert scene.cluster.replicas_seen == [3, 2]


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def test_a_refused_template_keeps_nobody_from_scaling(scene: Scene, front: Front) -> None:
    kubeconfig = str(scene.server.kubeconfig(server=front.url))
    async with scene.operator(kubeconfig=kubeconfig):
        await scene.make()
        await scene.serving(1)
        front.faults.append(Fault(is_template, status=400, body=POLICY))
        await scene.change(template={"image": "other"})
        condition = await until_degraded(scene, "Invalid")
        assert "not today" in condition["message"]
        scene.cluster.busy(9_000, running=9)
        await scene.until(lambda: len(scene.cluster.workers) >= 2, "load adds a replica")

        async def let_in() -> bool:
            return bool((await scene.status()).get("readyReplicas", 0) >= 2)

        await scene.until(let_in, "its gate opens and the status is updated")
        assert (await scene.condition("Degraded"))["reason"] == "Invalid"
        front.faults.clear()

        async def applied() -> bool:
            spec = (await scene.kube.get(DEPLOYMENTS, scene.key()))["spec"]
            return bool(spec["template"]["spec"]["containers"][0]["image"] == "other")

        await scene.until(applied, "it is tried again")
        await until_degraded(scene, "AsExpected")


async def test_what_somebody_else_has_made_under_the_pools_name_is_left_alone(
    scene: Scene,
) -> None:
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "pool", "namespace": scene.namespace},
        "spec": {"clusterIP": "None", "selector": {"app": "other"}, "ports": [{"port": 80}]},
    }
    await scene.kube.create(SERVICES, body)
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=1)
        condition = await until_degraded(scene, "NameTaken")
        assert f"Service {scene.namespace}/pool" in condition["message"]
        there = await scene.kube.get(SERVICES, scene.key())
        assert there["spec"]["selector"] == {"app": "other"}
        assert "ownerReferences" not in there["metadata"]
        assert scene.cluster.workers == {}
        await scene.kube.delete(SERVICES, scene.key())
        await scene.serving(1)
        await until_degraded(scene, "AsExpected")


@pytest.mark.parametrize("kind", ["Service", "Deployment"])
async def test_a_foreign_object_is_left_untouched_under_a_full_quota_too(
    scene: Scene, kind: str
) -> None:
    """A quota refuses every creation before the server looks for the name."""
    metadata = {"name": "pool", "namespace": scene.namespace}
    labels = {"app": "other"}
    container = {"name": "web", "image": "web:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    resource, spec = {
        "Service": (SERVICES, {"selector": labels, "ports": [{"port": 80}]}),
        "Deployment": (
            DEPLOYMENTS,
            {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        ),
    }[kind]
    before = await scene.kube.create(resource, {"metadata": metadata, "spec": spec})
    await full_quota(scene, f"count/{resource.plural}.apps" if kind == "Deployment" else "services")
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=1)
        condition = await until_degraded(scene, "NameTaken")
        assert f"{kind} {scene.namespace}/pool" in condition["message"]
        after = await scene.kube.get(resource, scene.key())
        assert (after["spec"], after["metadata"]) == (before["spec"], before["metadata"])


async def full_quota(scene: Scene, what: str) -> None:
    quotas = Resource("", "v1", "resourcequotas", "ResourceQuota")
    metadata = {"name": "full", "namespace": scene.namespace}
    await scene.kube.create(quotas, {"metadata": metadata, "spec": {"hard": {what: "0"}}})
    status = {"status": {"hard": {what: "0"}, "used": {what: "0"}}}  # no controller here counts
    key = scene.key("full")
    await scene.kube.patch(quotas, key, status, manager="quota", subresource="status")

    async def holds() -> bool:
        probe = {"metadata": {"name": "probe", "namespace": scene.namespace}}
        ports = {"spec": {"ports": [{"port": 80}]}}
        try:
            await scene.kube.create(SERVICES, probe | ports)
        except Forbidden:
            return True
        await scene.kube.delete(SERVICES, scene.key("probe"))
        return False

    if what == "services":
        await scene.until(holds, "the quota holds")


async def test_a_pod_with_the_pools_label_alone_is_no_replica(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=1)
        await scene.serving(1)
        container = {"name": "debug", "image": "busybox"}
        labels = {"pando.dev/pool": "pool"}
        metadata = {"name": "debug", "namespace": scene.namespace, "labels": labels}
        scene.cluster.ignored.add("debug")
        await scene.kube.create(PODS, {"metadata": metadata, "spec": {"containers": [container]}})
        await scene.change(replicas=2)
        await scene.serving(2)
        assert (await scene.status())["replicas"] == 2
        await scene.change(replicas=1)
        await scene.serving(1)
        assert "annotations" not in (await scene.kube.get(PODS, scene.key("debug")))["metadata"]


async def test_labels_and_owner_that_somebody_takes_away_are_set_back(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=1)
        await scene.serving(1)
        before = (await scene.kube.get(DEPLOYMENTS, scene.key()))["metadata"]
        part_of = "app.kubernetes.io/part-of"
        wrong = {"metadata": {"labels": {part_of: "theirs"}, "ownerReferences": None}}
        await scene.kube.patch(DEPLOYMENTS, scene.key(), wrong, manager="somebody")

        async def back() -> bool:
            now = (await scene.kube.get(DEPLOYMENTS, scene.key()))["metadata"]
            names = ("labels", "ownerReferences")
            return all(now.get(name) == before[name] for name in names)

        await scene.until(back, "they are as they were")


async def test_a_pod_that_was_taken_from_its_replica_set_is_left_alone(scene: Scene) -> None:
    """As for debugging: another pod has replaced it, and it still sends heartbeats."""
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=2)
        await scene.serving(2)
        name = sorted(scene.cluster.workers)[0]
        key = scene.key(name)
        scene.cluster.ignored.add(name)
        freed = {"metadata": {"ownerReferences": None, "labels": {"pod-template-hash": "mine"}}}
        before = await scene.kube.patch(PODS, key, freed, manager="user")
        await scene.until(
            lambda: name not in scene.cluster.workers and len(scene.cluster.workers) == 2,
            "another replaces it",
        )
        await scene.serving(2)
        await scene.change(replicas=1)
        await scene.serving(1)
        assert await scene.kube.get(PODS, key) == before
