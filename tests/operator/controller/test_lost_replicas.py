"""Replicas whose nodes are gone, or of which nobody hears any more."""

import pytest

from pando_operator.kube.resources import PODS
from pando_operator.lifecycle import census
from tests.operator.controller.conftest import FAST, Scene

MANUAL = {"mode": "Manual", **FAST}


async def test_replicas_of_dead_nodes_do_not_serve_and_keep_no_pool_from_shrinking(
    scene: Scene,
) -> None:
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=3)
        await scene.serving(3)
        lost, *others = sorted(scene.cluster.workers)
        await scene.cluster.lose(lost)

        async def noticed() -> bool:
            return bool((await scene.status()).get("readyReplicas") == 2)

        await scene.until(noticed, "it does not count as ready")
        await scene.change(replicas=2)

        async def ending() -> bool:
            pod = await scene.kube.get(PODS, scene.key(lost))
            return "deletionTimestamp" in pod["metadata"]

        await scene.until(ending, "the lost one leaves, long before its drain would time out", 15)
        assert scene.cluster.replicas_seen == [3, 2]
        assert set(others) <= scene.cluster.workers.keys()
        for name in others:
            await scene.cluster.lose(name)

        async def down() -> bool:
            available = await scene.condition("Ready")
            return (available["status"], available["reason"]) == ("False", "NoReplicaReady")

        await scene.until(down, "no replica serves")


async def test_a_silent_replica_is_named_and_the_pool_shrinks(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(census, "SILENT_S", 1.0)
    drain = {"timeoutSeconds": 2, "handOffTokens": 0}
    async with scene.operator():
        await scene.make(scaling={"mode": "Auto", **FAST, "minReplicas": 3, "drain": drain})
        await scene.serving(3)
        silent = sorted(scene.cluster.workers)[0]
        scene.cluster.silent.add(silent)

        async def named() -> bool:
            found = await scene.condition("Degraded")
            return found["reason"] == "ReplicaSilent" and silent in found["message"]

        await scene.until(named, "the condition names it")
        await scene.change(scaling={"minReplicas": 1})
        await scene.serving(1)
        assert silent not in scene.cluster.workers
