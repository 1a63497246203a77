"""A node is emptied on which a pool has its only replica."""

import pytest

from pando_operator.kube.resources import NODES, Key, Object, disruption_budgets
from tests.operator.controller.conftest import FAST, Scene, draining
from tests.operator.controller.test_permissions import USER, grant, listed


async def node(scene: Scene, name: str) -> Key:
    key = Key("", f"{scene.namespace}-{name}")
    await scene.kube.create(NODES, {"metadata": {"name": key.name}})
    scene.closing.callback(scene.server.call, "DELETE", NODES.path(name=key.name))
    return key


async def allowed(scene: Scene) -> int:
    """How many replicas may be evicted at once."""
    budgets = disruption_budgets(await scene.kube.minor())
    budget = await scene.kube.get(budgets, scene.key())
    return int(budget["spec"]["maxUnavailable"])


@pytest.mark.parametrize("mode", ["Auto", "Manual"])
async def test_an_only_replica_moves_without_a_gap(scene: Scene, mode: str) -> None:
    old, new = await node(scene, "old"), await node(scene, "new")
    scene.cluster.node = old.name
    async with scene.operator():
        await scene.make(scaling={"mode": mode, **FAST})
        await scene.serving(1)
        assert await allowed(scene) == 0
        (first,) = scene.cluster.workers
        scene.cluster.workers[first].running = 1
        scene.cluster.node = new.name
        scene.cluster.starts_ready = False
        await scene.kube.patch(NODES, old, {"spec": {"unschedulable": True}}, manager="kubectl")
        await scene.until(lambda: len(scene.cluster.workers) == 2, "its successor starts")
        assert await draining(scene) == []
        assert (await scene.status())["desired"] == 1
        second = max(scene.cluster.workers)
        scene.cluster.workers[second].ready = True

        async def leaves() -> bool:
            return await draining(scene) == [first]

        await scene.until(leaves, "the first leaves")
        scene.cluster.workers[first].running = 0
        await scene.serving(1)
        assert set(scene.cluster.workers) == {second}
        assert (await scene.event("Moving"))["count"] == 1
    assert scene.cluster.replicas_seen == [1, 2, 1]


async def test_a_node_that_is_used_again_keeps_its_replica(scene: Scene) -> None:
    old, new = await node(scene, "old"), await node(scene, "new")
    scene.cluster.node = old.name
    async with scene.operator():
        await scene.make()
        await scene.serving(1)
        (first,) = scene.cluster.workers
        scene.cluster.node, scene.cluster.starts_ready = new.name, False
        for cordoned, count in ((True, 2), (None, 1)):
            body: Object = {"spec": {"unschedulable": cordoned}}
            await scene.kube.patch(NODES, old, body, manager="kubectl")
            await pods(scene, count)
        assert set(scene.cluster.workers) == {first}


async def pods(scene: Scene, count: int) -> None:
    await scene.until(lambda: len(scene.cluster.workers) == count, f"{count} pods")


async def test_an_operator_that_may_not_see_nodes_lets_the_only_replica_be_evicted(
    scene: Scene,
) -> None:
    grant(scene, listed())
    async with scene.operator(kubeconfig=str(scene.server.kubeconfig(USER))):
        await scene.make()
        await scene.serving(1)
        assert await allowed(scene) == 1
        await scene.change(scaling={"minReplicas": 2})
        await scene.serving(2)


async def test_two_replicas_are_evicted_one_after_the_other(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=2)
        await scene.serving(2)
        assert await allowed(scene) == 1
