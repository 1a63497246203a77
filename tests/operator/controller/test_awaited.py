"""A change of a pool can be awaited, by `kubectl wait`, Argo CD and Flux."""

from pando_operator.kube.resources import DEPLOYMENTS, WORKER_POOLS, Object
from tests.operator.controller.conftest import FAST, Scene

MANUAL = {"mode": "Manual", **FAST}


def kstatus(pool: Object) -> str:
    """The status of any kind by kstatus' rules, as its README has them."""
    status = pool.get("status", {})
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    if pool["metadata"]["generation"] != status.get("observedGeneration"):
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    if conditions.get("Reconciling") == "True" or conditions.get("Ready") != "True":
        return "InProgress"
    return "Current"


async def until(scene: Scene, wanted: str) -> Object:
    async def is_so() -> Object | None:
        pool = await scene.kube.get(WORKER_POOLS, scene.key())
        return pool if kstatus(pool) == wanted else None

    found: Object = await scene.until(is_so, f"the pool is {wanted}")
    return found


async def test_a_new_image_is_current_only_when_all_new_replicas_serve(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=2, template={"image": "one"})
        await until(scene, "Current")
        scene.cluster.starts_ready = False
        seen: list[Object] = []

        async def looks() -> bool:
            """Collects every state until the first new replica exists."""
            seen.append(await scene.kube.get(WORKER_POOLS, scene.key()))
            return len(scene.cluster.workers) == 3

        changed = await scene.change(template={"image": "two"})
        await scene.until(looks, "a new replica")
        assert {kstatus(pool) for pool in seen} == {"InProgress"}

        async def reported() -> bool:
            ready = await scene.condition("Ready")
            generation = changed["metadata"]["generation"]
            return (ready["reason"], ready["observedGeneration"]) == ("RollingOut", generation)

        await scene.until(reported, "the rollout is reported")
        status = await scene.status()
        assert (status["readyReplicas"], status.get("updatedReplicas", 0)) == (2, 0)
        assert (await scene.condition("Available"))["status"] == "True"
        assert (await scene.condition("Progressing"))["status"] == "True"

        scene.cluster.starts_ready = True
        for worker in scene.cluster.workers.values():
            worker.ready = True
        pool = await until(scene, "Current")
        assert pool["status"]["updatedReplicas"] == 2
        images = {
            pod["spec"]["containers"][0]["image"]
            for pod in await scene.cluster.pods()
            if "deletionTimestamp" not in pod["metadata"]
        }
        assert images == {"two"}


async def test_a_pool_pauses_by_its_own_field_alone(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=1, template={"image": "one"})
        await until(scene, "Current")
        paused = {"spec": {"paused": True}}
        await scene.kube.patch(DEPLOYMENTS, scene.key(), paused, manager="kubectl-rollout")

        async def goes_on() -> bool:
            deployment = await scene.kube.get(DEPLOYMENTS, scene.key())
            return not deployment["spec"].get("paused")

        await scene.until(goes_on, "kubectl rollout pause is undone")
        await scene.change(paused=True, template={"image": "two"})

        async def waits() -> bool:
            return bool((await scene.condition("Progressing"))["reason"] == "Paused")

        await scene.until(waits, "the status says that it waits")
        assert (await scene.kube.get(DEPLOYMENTS, scene.key()))["spec"]["paused"]
        assert kstatus(await scene.kube.get(WORKER_POOLS, scene.key())) == "InProgress"


async def test_a_wrong_spec_has_failed(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=1)
        await until(scene, "Current")
        await scene.change(scaling={"minReplicas": 7})
        await until(scene, "Failed")
        assert (await scene.condition("Available"))["status"] == "True"
        await scene.change(scaling={"minReplicas": 1})
        await until(scene, "Current")
