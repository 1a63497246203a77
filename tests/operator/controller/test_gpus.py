"""Pools that want the same GPUs share the operator's budget of them."""

from itertools import accumulate

from pando_operator.controller.observing.gpu_shares import GpuShares, HeldGpus
from pando_operator.kube.resources import Key
from pando_operator.resource.parse import parse
from pando_operator.resource.pool import WorkerPool
from pando_operator.scaling import Grant
from tests.operator.controller.conftest import FAST, Scene
from tests.operator.lifecycle.planned import NOW, drained, pod

BUDGET = {"H100": 4}


def wants(priority: int = 0, **more: object) -> dict[str, object]:
    return {"mode": "Manual", **FAST, "priority": priority, **more}


def most_at_once(scene: Scene) -> int:
    return max(accumulate(1 if line.startswith("+") else -1 for line in scene.cluster.log))


async def test_priority_decides_and_the_budget_is_never_exceeded(scene: Scene) -> None:
    async with scene.operator(gpu_budget=BUDGET):
        await scene.make("code", gpuType="H100", scaling=wants(), replicas=4)
        await scene.serving(4, "code")
        await scene.make("free", scaling=wants(), replicas=1)  # of a kind without a budget
        await scene.serving(1, "free")
        await scene.make("chat", gpuType="H100", scaling=wants(10), replicas=3)
        await scene.serving(3, "chat")
        await scene.serving(1, "code")
        rival = f"{scene.namespace}/chat has priority 10"
        limit = ("True", "Gpus", f"wants 4, gets 1: 4 of 4 H100 in use; {rival}")

        async def said() -> bool:
            found = await scene.condition("ScalingLimited", "code")
            reason = (await scene.status("code"))["reason"]
            return (found["status"], found["reason"], found["message"]) == limit and rival in reason

        await scene.until(said, "the pool says who has the GPUs")
        await scene.change("chat", replicas=1)
        await scene.serving(3, "code")
    assert most_at_once(scene) == 5


async def test_load_takes_replicas_from_a_pool_that_is_less_over_its_target(scene: Scene) -> None:
    """Two pools of one priority: the one under load takes over what the idle one does not need,
    and later one more, as it is further over its target."""
    auto = {"mode": "Auto", **FAST, "priority": 0}
    async with scene.operator(gpu_budget=BUDGET):
        await scene.make("a", gpuType="H100", scaling=auto)
        await scene.make("b", gpuType="H100", scaling=auto | {"minReplicas": 2})
        await scene.serving(1, "a")
        await scene.serving(2, "b")
        for worker in scene.cluster.workers.values():
            worker.pinned, worker.running = (9_900, 9) if worker.pod.startswith("a-") else (0, 0)
        scene.cluster.made = lambda worker: setattr(
            worker, "pinned", 9_900 if worker.pod.startswith("a-") else 0
        )
        await scene.serving(2, "a")
        await scene.until(lambda: limited(scene, "a"), "a gets no more")
        await scene.change("b", scaling={"minReplicas": 1})
        await scene.serving(3, "a")
        await scene.serving(1, "b")
    assert most_at_once(scene) == 4


async def limited(scene: Scene, name: str) -> bool:
    return (await scene.condition("ScalingLimited", name)).get("reason") == "Gpus"


async def test_a_new_operator_grows_no_pool_before_it_knows_them_all() -> None:
    keys = [Key("n", "a"), Key("n", "b")]
    shares = GpuShares({"H100": 4}, lambda: keys)
    assert shares.grant(keys[0], of("a"), wanted=4, held=HeldGpus(1, 1)) == Grant(
        1, "the other pools' GPUs are not known yet"
    )
    shares.seen(keys[0])
    assert (
        shares.grant(keys[1], of("b"), wanted=3, held=HeldGpus(3, 3)).replicas == 2
    )  # gives one up
    shares.seen(keys[1])
    assert shares.grant(keys[0], of("a"), wanted=4, held=HeldGpus(1, 1)).replicas == 1
    shares.forget(keys.pop())
    assert shares.grant(keys[0], of("a"), wanted=4, held=HeldGpus(1, 1)).replicas == 4


def of(name: str) -> WorkerPool:
    spec = {"model": "m", "gpuType": "H100", "scaling": {"mode": "Manual"}}
    return parse({"metadata": {"name": name, "namespace": "n"}, "spec": spec})


def test_what_leaves_still_holds_its_gpus() -> None:
    gone = pod("gone", deleting=True, deleting_since=NOW - 400, grace_s=300)
    ends = pod("ends", deleting=True, deleting_since=NOW - 1, grace_s=300)
    failed = pod("failed", finished=True)
    assert HeldGpus.of([pod("a"), drained("b"), ends, gone, failed], 2, NOW) == HeldGpus(3, 2)
    assert HeldGpus.of([pod("a")], 3, NOW) == HeldGpus(3, 3)  # Kubernetes may make them at any time
