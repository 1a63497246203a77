"""An operator that has changed replaces the pods of one pool at a time."""

from pando_operator.kube.resources import PODS, Object
from tests.operator.controller.conftest import FAST, Scene

MANUAL = {"mode": "Manual", **FAST}
POOLS = ("a", "b", "c")


async def images(scene: Scene) -> dict[str, set[str]]:
    """The images of each pool's pods."""
    found: dict[str, set[str]] = {name: set() for name in POOLS}
    pods, _ = await scene.kube.list(PODS, scene.namespace)
    for pod in pods:
        image = pod["spec"]["containers"][0]["image"]
        found[pod["metadata"]["labels"]["pando.dev/pool"]].add(image)
    return found


async def pools(scene: Scene) -> None:
    for name in POOLS:
        await scene.make(name, scaling=MANUAL, replicas=2)
    for name in POOLS:
        await scene.serving(2, name)


async def waits(scene: Scene, name: str) -> str:
    """The message with which the pool waits, or ""."""
    found = await scene.condition("Progressing", name)
    return str(found["message"]) if found.get("reason") == "WaitsForPool" else ""


async def test_each_pool_waits_for_the_last(scene: Scene) -> None:
    async with scene.operator(worker_image="one"):
        await pools(scene)
    scene.cluster.starts_ready = False
    left = set(POOLS)
    async with scene.operator(worker_image="two", identity="newer"):
        while left:
            rolling = await one_begins(scene, left)
            left.discard(rolling)
            await others_wait(scene, left, rolling)
            found = await images(scene)
            assert all(found[other] == {"one"} for other in left), found
            await rolls(scene, rolling)
        for name in POOLS:
            await scene.serving(2, name)
            assert await waits(scene, name) == ""


async def one_begins(scene: Scene, among: set[str]) -> str:
    async def beginning() -> list[str]:
        found = await images(scene)
        return [name for name in among if "two" in found[name]]

    (name,) = await scene.until(beginning, "one rolls")
    return str(name)


async def others_wait(scene: Scene, others: set[str], rolling: str) -> None:
    async def all_wait() -> bool:
        said = [await waits(scene, other) for other in others]
        return all(f"waits for pool {scene.namespace}/{rolling}:" in one for one in said)

    await scene.until(all_wait, f"the others wait for {rolling}")


async def rolls(scene: Scene, name: str) -> None:
    async def rolled() -> bool:
        for worker in scene.cluster.workers.values():
            worker.ready = worker.ready or worker.pod.startswith(f"{name}-")
        return (await images(scene))[name] == {"two"}

    await scene.until(rolled, f"{name} has rolled")


async def test_a_changed_spec_waits_for_nobody(scene: Scene) -> None:
    async with scene.operator(worker_image="one"):
        await pools(scene)
        scene.cluster.starts_ready = False
        for name in POOLS:
            await scene.change(name, template={"image": "mine"})

        async def all_begin() -> bool:
            return all("mine" in found for found in (await images(scene)).values())

        await scene.until(all_begin, "all roll")


async def test_a_new_operator_goes_on_where_the_last_one_ended(scene: Scene) -> None:
    """The pool that rolls is known by its pods."""
    async with scene.operator(worker_image="one"):
        await pools(scene)
    scene.cluster.starts_ready = False
    left = set(POOLS)
    async with scene.operator(worker_image="two", identity="second"):
        rolling = await one_begins(scene, left)
    left.discard(rolling)
    async with scene.operator(worker_image="two", identity="third"):
        for name in left:
            await scene.change(name, replicas=3)  # another size replaces no pod
            await grown(scene, name)
        await others_wait(scene, left, rolling)
        found = await images(scene)
        assert all(found[other] == {"one"} for other in left), found


async def grown(scene: Scene, name: str) -> None:
    async def is_so() -> bool:
        return bool((await scene.status(name)).get("replicas") == 3)

    await scene.until(is_so, f"{name} has grown")


async def test_a_paused_pool_and_one_that_has_failed_hold_no_other(scene: Scene) -> None:
    async with scene.operator(worker_image="one"):
        await pools(scene)
        await scene.change("a", paused=True)
        await scene.change("b", template={"image": "broken"})

        async def broken() -> bool:
            return "broken" in (await images(scene))["b"]

        scene.cluster.starts_ready = False
        await scene.until(broken, "b rolls")
    failed: Object = {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
    }
    path = f"/apis/apps/v1/namespaces/{scene.namespace}/deployments/b/status"
    body = {"status": {"conditions": [failed]}}
    merge = "application/merge-patch+json"
    scene.server.call("PATCH", path, body, content_type=merge)
    async with scene.operator(worker_image="two", identity="newer"):

        async def begins() -> bool:
            return "two" in (await images(scene))["c"]

        await scene.until(begins, "c rolls")
