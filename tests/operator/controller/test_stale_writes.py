"""A write that arrives late, from an operator that leads no more, lowers no pool."""

import asyncio

import pytest

from pando_fleet.records.marks import Marks
from pando_operator.controller.acting.execute import Executor
from pando_operator.controller.observing.watch_caches import WatchCaches
from pando_operator.kube.errors import Conflict
from pando_operator.kube.resources import DEPLOYMENTS, disruption_budgets
from tests.operator.controller.conftest import FAST, Scene


async def test_replicas_fall_only_from_the_deployment_that_was_seen(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=3)
        await scene.serving(3)
    budgets = disruption_budgets(await scene.kube.minor())
    caches = WatchCaches(scene.kube, (scene.namespace,), lambda _: None, lambda _: None, budgets)
    watching = asyncio.create_task(caches.run())
    await caches.settled()
    watching.cancel()  # it sees nothing from now on
    await asyncio.gather(watching, return_exceptions=True)
    marks = Marks(scene.redis, "pool")
    old = Executor(scene.kube, caches, marks, scene.key(), lambda _: None)
    changed = {"metadata": {"annotations": {"by": "the next leader"}}}
    await scene.kube.patch(DEPLOYMENTS, scene.key(), changed, manager="next")
    with pytest.raises(Conflict):
        await old.scale(2)
    assert (await scene.kube.get(DEPLOYMENTS, scene.key()))["spec"]["replicas"] == 3
    await old.scale(4)
    await old.scale(3)  # it has seen its own write
    assert (await scene.kube.get(DEPLOYMENTS, scene.key()))["spec"]["replicas"] == 3
