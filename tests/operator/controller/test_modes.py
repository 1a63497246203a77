"""A pool that leaves mode Auto keeps its size until someone scales it."""

from collections.abc import Awaitable, Callable

from pando_operator.kube.resources import DEPLOYMENTS, WORKER_POOLS
from tests.operator.controller.conftest import FAST, Scene

AUTO = {"mode": "Auto", **FAST}


def size(scene: Scene, replicas: int) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        pool = await scene.kube.get(WORKER_POOLS, scene.key())
        return bool(pool["spec"]["replicas"] == replicas)

    return is_so


async def scale(scene: Scene, replicas: int) -> None:
    """As `kubectl scale` does."""
    body = {"spec": {"replicas": replicas}}
    key = scene.key()
    await scene.kube.patch(WORKER_POOLS, key, body, manager="kubectl", subresource="scale")


async def seen(scene: Scene) -> None:
    pool = await scene.kube.get(WORKER_POOLS, scene.key())

    async def is_so() -> bool:
        status = await scene.status()
        return bool(status.get("observedGeneration", 0) >= pool["metadata"]["generation"])

    await scene.until(is_so, "the change is seen")


async def test_without_auto_a_pool_stays_as_large_as_it_is_until_it_is_scaled(
    scene: Scene,
) -> None:
    async with scene.operator():
        await scene.make(scaling=AUTO | {"minReplicas": 3})
        await scene.serving(3)
        await scene.until(size(scene, 3), "spec.replicas says so")
        for mode in ("Manual", "Recommend"):
            await scene.change(scaling={"mode": mode, "minReplicas": 1})
            await seen(scene)
            assert (await scene.status())["desired"] == 3
        assert scene.cluster.replicas_seen == [3]
        await scale(scene, 1)  # the API server's default
        await scene.serving(1)
    # Two leave, together or one after the other.
    assert scene.cluster.replicas_seen in ([3, 1], [3, 2, 1])


async def test_a_size_that_is_given_with_the_mode_counts(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling=AUTO | {"minReplicas": 3})
        await scene.serving(3)
        await scene.change(scaling={"mode": "Manual"}, replicas=1)
        await scene.serving(1)
        await scene.change(scaling={"mode": "Auto", "minReplicas": 2})
        await scene.serving(2)
        await scene.until(size(scene, 2), "spec.replicas follows again")


async def test_a_mode_that_changes_while_no_operator_runs_changes_no_size(scene: Scene) -> None:
    async with scene.operator(identity="first"):
        await scene.make(scaling=AUTO | {"minReplicas": 3})
        await scene.serving(3)
    await scene.change(scaling={"mode": "Manual", "minReplicas": 1})
    async with scene.operator(identity="second"):
        await seen(scene)
        assert (await scene.status())["desired"] == 3
    assert scene.cluster.replicas_seen == [3]


async def test_in_auto_the_load_decides_whatever_somebody_writes(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling=AUTO | {"minReplicas": 2})
        await scene.serving(2)
        await scale(scene, 5)
        await scene.until(size(scene, 2), "it is set back")
        await seen(scene)
    assert scene.cluster.replicas_seen == [2]


async def test_whoever_sets_the_size_of_an_auto_pool_is_overruled_and_hears_of_it(
    scene: Scene,
) -> None:
    async with scene.operator():
        await scene.make(scaling=AUTO | {"minReplicas": 2, "maxReplicas": 2})
        await scene.serving(2)
        await scene.until(size(scene, 2), "spec.replicas says so")
        await scale(scene, 5)
        event = await scene.event("Overruled")
        assert event["type"] == "Warning"
        assert event["message"].startswith("spec.replicas was set to 5; in mode Auto")
        await scene.until(size(scene, 2), "it is set back")


async def test_an_autoscaler_of_the_deployment_is_overruled_and_named(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=1)
        await scene.serving(1)
        theirs = {"spec": {"replicas": 3}}
        hpa = "horizontal-pod-autoscaler"
        await scene.kube.patch(DEPLOYMENTS, scene.key(), theirs, manager=hpa)
        event = await scene.event("Overruled")
        assert event["message"] == (
            f"{hpa} set the Deployment's replicas to 3; the size is that of the WorkerPool:"
            " scale workerpool/pool"
        )
        await scene.serving(1)
