"""During a rollout, even an interrupted one, sizes follow the spec and caches are handed off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pando_fleet.records.marks import Mark, MarkKind, Marks, MarkState
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import ReplicaState
from pando_operator.kube.resources import DEPLOYMENTS, PODS, Key, Object, key_of
from pando_operator.objects.pod import SAFE_TO_EVICT
from tests.operator.controller.conftest import FAST, Scene
from tests.operator.front import Fault, Front

MANUAL = {"mode": "Manual", **FAST}
GRADUAL: dict[str, Any] = {
    **FAST,
    "behavior": {
        "scaleUp": {"policies": [{"type": "Pods", "value": 5, "periodSeconds": 1}]},
        "scaleDown": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 3}],
        },
    },
}
"""A rate that would revert a change that is reported but not carried out."""

UNHURRIED = {**FAST, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 600}}}


async def images(scene: Scene) -> list[str]:
    return sorted(
        pod["spec"]["containers"][0]["image"]
        for pod in await scene.cluster.pods()
        if "deletionTimestamp" not in pod["metadata"]
    )


async def rolled(scene: Scene, *wanted: str) -> None:
    async def is_so() -> bool:
        return await images(scene) == sorted(wanted)

    await scene.until(is_so, f"pods are {wanted}")


async def test_a_new_template_replaces_all_replicas_and_each_hands_off_its_cache(
    scene: Scene,
) -> None:
    scaling = MANUAL | {"drain": {"timeoutSeconds": 20, "handOffTokens": 100}}
    async with scene.operator(), routers(scene) as performed:
        await scene.make(scaling=scaling, replicas=2, template={"image": "one"})
        await scene.serving(2)
        before = set(scene.cluster.workers)
        await scene.change(template={"image": "two"})
        await rolled(scene, "two", "two")
        await scene.serving(2)
    assert {mark.replica for mark in performed} == before
    assert scene.cluster.replicas_seen == [2]


async def test_a_pod_that_somebody_deletes_hands_off_its_cache(scene: Scene) -> None:
    scaling = MANUAL | {"drain": {"timeoutSeconds": 20, "handOffTokens": 100}}
    async with scene.operator(), routers(scene) as performed:
        await scene.make(scaling=scaling, replicas=2)
        await scene.serving(2)
        one = min(scene.cluster.workers)
        await scene.kube.delete(PODS, Key(scene.namespace, one))
        await scene.until(lambda: one not in scene.cluster.workers, "it has gone")
        await scene.serving(2)
    assert [mark.replica for mark in performed] == [one]


@asynccontextmanager
async def routers(scene: Scene) -> AsyncIterator[list[Mark]]:
    """Act as the routers: hand off the prefixes of a replica that is still in the fleet."""
    marks, registry = Marks(scene.redis, "pool"), Registry(scene.redis)
    performed: list[Mark] = []

    async def perform() -> None:
        while True:
            for mark in await marks.all():
                if mark.kind is MarkKind.HAND_OFF and not mark.is_over:
                    states = {r.beat.replica: r.beat.state for r in await registry.replicas("pool")}
                    if states.get(mark.replica) is ReplicaState.DRAINING:
                        claimed = await marks.claim(mark, "router")
                        assert claimed is not None
                        await marks.report(claimed, state=MarkState.DONE)
                        performed.append(mark)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(perform())
    try:
        yield performed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_pool_shrinks_though_its_rollout_cannot_end(scene: Scene) -> None:
    """The new pod fits no node; the old ones leave as usual, and the pool may sleep."""
    scene.cluster.placeless.add("two")
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=4, template={"image": "one"})
        await scene.serving(4)
        await scene.change(template={"image": "two"})
        await rolled(scene, "one", "one", "one", "one", "two")
        await scene.change(replicas=2)
        await rolled(scene, "one", "one", "two")
        await scene.change(replicas=0)
        await scene.serving(0)
        assert scene.cluster.replicas_seen == [4, 3, 2, 1, 0]
        scene.cluster.placeless.clear()
        await scene.change(replicas=2)
        await scene.serving(2)
        assert await images(scene) == ["two", "two"]


async def test_the_reported_change_of_a_pool_that_shrinks_in_a_rollout_is_what_happens(
    scene: Scene,
) -> None:
    scene.cluster.placeless.add("two")
    async with scene.operator():
        await scene.make(scaling={"mode": "Auto", **GRADUAL, "minReplicas": 3})
        await scene.serving(3)
        await scene.change(template={"image": "two"})
        await scene.until(lambda: len(scene.cluster.log) == 4, "a new pod")
        await scene.change(scaling={"minReplicas": 1})
        await scene.until(lambda: len(scene.cluster.workers) == 1, "one old pod serves")

        async def wants_one() -> bool:
            return (await scene.status()).get("desired") == 1

        await scene.until(wants_one, "the status wants one replica")
        decisions = (await scene.status())["decisions"]
        steps = [(one["fromReplicas"], one["toReplicas"]) for one in reversed(decisions)]
        assert steps in ([(0, 3), (3, 2), (2, 1)], [(0, 3), (3, 1)])
        await scene.event("ScaledUp")
    assert scene.cluster.replicas_seen == [3, 2, 1]


async def test_a_deployment_that_somebody_deletes_comes_back_in_its_size(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling={"mode": "Auto", **UNHURRIED, "minReplicas": 3})
        await scene.serving(3)
        await scene.change(scaling={"minReplicas": 1})
        before = (await scene.kube.get(DEPLOYMENTS, scene.key()))["metadata"]["uid"]
        await scene.kube.delete(DEPLOYMENTS, scene.key())

        async def is_back() -> Object | None:
            found, _ = await scene.kube.list(DEPLOYMENTS, scene.namespace)
            return next((one for one in found if one["metadata"]["uid"] != before), None)

        deployment = await scene.until(is_back, "there is another")
        assert deployment["spec"]["replicas"] == 3


async def test_an_operator_that_ends_while_it_makes_a_deployment_leaves_its_size(
    scene: Scene, front: Front
) -> None:
    """`replicas` is then the only field that the next apply would reset to its default."""

    def scales(request: Any) -> bool:
        return "/deployments/" in request.path and "pando-scaler" in request.query_string

    front.faults.append(Fault(scales, status=500))
    kubeconfig = str(scene.server.kubeconfig(server=front.url))
    async with scene.operator(kubeconfig=kubeconfig, identity="first"):
        await scene.make(scaling=MANUAL, replicas=3)
        await scene.until(lambda: front.faults[0].hits, "the operator tries to scale it")
    async with scene.operator(identity="second"):
        await scene.serving(3)
        await scene.change(template={"image": "two"})
        await rolled(scene, "two", "two", "two")
        await scene.serving(3)
    assert scene.cluster.replicas_seen == [3]


async def test_a_pod_whose_annotation_a_webhook_rewrites_is_of_the_current_template(
    scene: Scene,
) -> None:
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=1)
        await scene.serving(1)
        (pod,) = await scene.cluster.pods()
        rewritten = {"metadata": {"annotations": {SAFE_TO_EVICT: "none"}}}
        await scene.kube.patch(PODS, key_of(pod), rewritten, manager="webhook")
        await scene.change(replicas=2)

        async def is_ready() -> bool:
            status, ready = await scene.status(), await scene.condition("Ready")
            return status.get("updatedReplicas") == 2 and ready["status"] == "True"

        await scene.until(is_ready, "both are of the current template")
        restart = {"kubectl.kubernetes.io/restartedAt": "2026-11-26T00:00:00Z"}
        body = {"spec": {"template": {"metadata": {"annotations": restart}}}}
        await scene.kube.patch(DEPLOYMENTS, scene.key("pool"), body, manager="kubectl-rollout")
        gone = key_of(pod).name
        await scene.until(lambda: gone not in scene.cluster.workers, "a restart replaces it")
        await scene.until(is_ready, "and its successor is current")
