"""During any failure the fleet stays as it is; afterwards unfinished work continues."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from pando_fleet.records.decisions import PastDecisions
from pando_fleet.records.expected import ExpectedPools
from pando_fleet.records.marks import Marks
from pando_fleet.redis.client import connect
from pando_fleet.registry.registry import Registry
from pando_operator.kube.resources import (
    DEPLOYMENTS,
    LEASES,
    WORKER_POOLS,
    Key,
)
from pando_worker.settings import WorkerSettings
from tests.fleet.redis_server import RedisServer
from tests.operator.controller.cluster import Cluster
from tests.operator.controller.conftest import FAST, Scene, draining
from tests.operator.front import Fault, Front

END_S = 5.0
"""From SIGTERM to the end of the process; on an idle machine it takes less than a second."""

MANUAL = {"mode": "Manual", **FAST}


def is_watch(request: web.Request) -> bool:
    return "watch=true" in request.path_qs


def is_lease(request: web.Request) -> bool:
    return "/leases" in request.path


async def test_a_wrong_pools_status_names_the_field_and_nothing_else_changes(
    scene: Scene,
) -> None:
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=1)
        await scene.serving(1)
        await scene.change(scaling={"minReplicas": 7}, replicas=2, template={"image": "other"})

        async def degraded() -> bool:
            return (await scene.condition("Degraded")).get("status") == "True"

        await scene.until(degraded, "Degraded")
        wrong = await scene.condition("Degraded")
        assert wrong["reason"] == "InvalidSpec"
        assert "spec.scaling.maxReplicas must be at least minReplicas" in wrong["message"]
        assert wrong["observedGeneration"] == 2
        event = await scene.event("InvalidSpec")
        assert (event["type"], event["message"]) == ("Warning", wrong["message"])
        deployment = await scene.kube.get(DEPLOYMENTS, scene.key())
        assert deployment["metadata"]["generation"] == 1
        status = await scene.status()
        assert (status["readyReplicas"], status["desired"]) == (1, 1)

        await scene.change(scaling={"minReplicas": 1}, template=None)
        await scene.serving(2)
        await scene.until(lambda: scene.events("Recovered"), "the recovery is reported")
        assert (await scene.condition("Degraded"))["status"] == "False"


async def test_a_drain_goes_on_with_another_operator(scene: Scene) -> None:
    async with scene.operator(identity="first") as first:
        await scene.make(scaling=MANUAL, replicas=2)
        await scene.serving(2)
        scene.cluster.busy(100, running=1)
        await scene.change(replicas=1)
        await scene.until(lambda: draining(scene), "a replica drains")
        (leaving,) = await draining(scene)

        async def reported() -> bool:
            return bool((await scene.status()).get("drainingReplicas") == 1)

        await scene.until(reported, "the status reports it")
        await first.stop()
    await scene.redis.flushall()  # even the marks are lost
    scene.cluster.workers[leaving].running = 0
    async with scene.operator(identity="second"):
        await scene.serving(1)
        await scene.event("ScaledDown")
    assert leaving not in scene.cluster.workers
    assert scene.cluster.replicas_seen == [2, 1]


async def test_a_replica_that_is_needed_again_is_given_back(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=2)
        await scene.serving(2)
        before = set(scene.cluster.workers)
        scene.cluster.busy(100, running=1)
        await scene.change(replicas=1)
        await scene.until(lambda: draining(scene), "a replica drains")
        await scene.change(replicas=2)

        async def kept() -> bool:
            return not await draining(scene)

        await scene.until(kept, "it is kept")
        await scene.serving(2)
        await scene.event("Kept")
    assert set(scene.cluster.workers) == before
    assert scene.cluster.replicas_seen == [2]


async def test_without_redis_nothing_is_scaled_and_this_is_reported(
    scene: Scene, start_valkey: Callable[..., RedisServer]
) -> None:
    server = start_valkey()
    scene.redis_url = server.url
    scene.cluster.redis = scene.redis = connect(server.url)
    async with scene.operator():
        await scene.make(scaling={"mode": "Auto", **FAST, "minReplicas": 2})
        await scene.serving(2)
        server.stop()

        async def signals_missing() -> bool:
            return (await scene.condition("ScalingActive")).get("reason") == "SignalsMissing"

        await scene.until(signals_missing, "signals are missing")
        assert (await scene.condition("ScalingActive"))["status"] == "False"
        changed = await scene.change(scaling={"minReplicas": 1})

        async def seen() -> bool:
            generation = changed["metadata"]["generation"]
            return bool((await scene.status()).get("observedGeneration") == generation)

        await scene.until(seen, "the new spec is seen")
        changed = await scene.change(scaling={"mode": "Manual"}, replicas=1)

        async def wanted() -> bool:
            return await seen() and (await scene.status()).get("desired") == 1

        await scene.until(wanted, "one replica fewer is wanted")
        assert scene.cluster.replicas_seen == [2]
        assert await draining(scene) == []
        assert not [line for line in scene.said if "failed" in line]
        server.start()
        await scene.serving(1)
        assert await ExpectedPools(scene.redis).read() == {"pool": ("m",)}


async def test_conflicts_and_errors_of_the_api_server_are_tried_again(
    scene: Scene, front: Front
) -> None:
    writes = {"PATCH", "POST", "PUT"}
    front.faults += [
        Fault(lambda one: one.method in writes and not is_lease(one), status=409, times=2),
        Fault(lambda one: one.method in writes and not is_lease(one), status=500, times=2),
        Fault(lambda one: one.method in writes and not is_lease(one), delay_s=0.2),
    ]
    async with scene.operator(kubeconfig=str(scene.server.kubeconfig(server=front.url))):
        await scene.make(scaling=MANUAL, replicas=2)
        await scene.serving(2)
        assert all(fault.times <= 0 for fault in front.faults)
        await scene.change(replicas=1)
        await scene.serving(1)
    assert scene.cluster.replicas_seen == [2, 1]


async def test_after_an_outage_of_the_api_server_the_loop_goes_on(
    scene: Scene, front: Front
) -> None:
    async with scene.operator(kubeconfig=str(scene.server.kubeconfig(server=front.url))):
        await scene.make(scaling=MANUAL, replicas=1)
        await scene.serving(1)
        outage = Fault(lambda one: not is_lease(one), status=503)
        front.faults.append(outage)
        front.break_watches()
        await scene.change(replicas=2)
        await scene.until(lambda: outage.hits > 4, "tries during the outage")
        assert scene.cluster.replicas_seen == [1]
        front.faults.clear()
        await scene.serving(2)


async def test_an_expired_watch_hides_no_change(scene: Scene, front: Front) -> None:
    async with scene.operator(kubeconfig=str(scene.server.kubeconfig(server=front.url))):
        await scene.make(scaling=MANUAL, replicas=1)
        await scene.serving(1)
        expired = Fault(is_watch, status=410, times=4)
        front.faults.append(expired)
        front.break_watches()
        await scene.change(replicas=2)
        await scene.serving(2)
        await scene.until(lambda: expired.times == 0, "all watches expired once")
        await scene.change(replicas=3)
        await scene.serving(3)


async def test_one_operator_acts_at_a_time_and_another_follows_the_one_that_is_cut_off(
    scene: Scene, front: Front
) -> None:
    kubeconfig = str(scene.server.kubeconfig(server=front.url))
    async with scene.operator(kubeconfig=kubeconfig, identity="first") as first:
        await scene.make(scaling=MANUAL, replicas=1)
        await scene.serving(1)
        async with scene.operator(identity="second") as second:
            assert not second.operator.leader.is_leading
            front.faults.append(Fault(is_lease, delay_s=60))
            await scene.until(lambda: not first.operator.leader.is_leading, "the first stops")
            writes = len([one for one in front.writes() if "/leases" not in one])
            await scene.until(lambda: second.operator.leader.is_leading, "the second leads")
            await scene.change(replicas=2)
            await scene.serving(2)
            assert len([one for one in front.writes() if "/leases" not in one]) == writes
            front.faults.clear()


async def test_a_calm_pool_costs_no_write_and_no_event(scene: Scene, front: Front) -> None:
    async with scene.operator(
        kubeconfig=str(scene.server.kubeconfig(server=front.url)), period=0.05
    ) as running:
        await scene.make(scaling=MANUAL, replicas=1)
        await scene.serving(1)
        reconciles = running.operator.metrics.reconciles.labels(scene.namespace, "pool", "ok")

        async def writes_between_looks(looks: int) -> list[str]:
            before, count = len(front.seen), reconciles._value.get()
            await scene.until(lambda: reconciles._value.get() >= count + looks, "looks")
            return [
                one
                for one in front.seen[before:]
                if not one.startswith("GET") and "/leases" not in one
            ]

        await writes_between_looks(2)  # the last reports of its start
        assert await writes_between_looks(10) == []


async def test_pools_of_one_name_in_two_namespaces_do_not_meet(scene: Scene) -> None:
    """Each has its own replicas, load, drain marks and rows in the same Redis."""
    other = f"{scene.namespace}-b"
    scene.server.call("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    theirs = Scene(
        scene.server,
        scene.kube,
        Cluster(scene.server, scene.kube, scene.redis, other),
        scene.redis_url,
        other,
    )
    expected, registry = ExpectedPools(scene.redis), Registry(scene.redis)
    playing = asyncio.create_task(theirs.cluster.run(), name="the other namespace")
    scene.running.append(playing)
    async with scene.operator(namespaces=(scene.namespace, other)):
        await scene.make(scaling=MANUAL, replicas=1)
        await theirs.make(scaling={"mode": "Auto", **FAST, "maxReplicas": 3})
        await scene.serving(1)
        await theirs.serving(1)
        assert await expected.owners() == {
            "pool": f"{scene.namespace}/pool",
            f"{other}/pool": f"{other}/pool",
        }
        mine, (far,) = set(scene.cluster.workers), set(theirs.cluster.workers)
        assert {one.beat.replica for one in await registry.replicas("pool")} == mine
        assert [one.beat.replica for one in await registry.replicas(f"{other}/pool")] == [far]
        (pod,) = await theirs.cluster.pods()
        variables = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert (
            WorkerSettings(model="m", pool=variables["PANDO_WORKER_POOL"]).pool == f"{other}/pool"
        )

        theirs.cluster.busy(9_000, running=9)
        await theirs.serving(2)
        assert (await scene.status())["readyReplicas"] == 1, "their load is not ours"
        theirs.cluster.busy(0)
        await theirs.until(lambda: len(theirs.cluster.workers) == 1, "they shrink by a drain mark")
        assert await Marks(scene.redis, "pool").all() == []
        await theirs.kube.delete(WORKER_POOLS, theirs.key())

        async def gone() -> bool:
            return set(await expected.read()) == {"pool"}

        await scene.until(gone, "theirs is gone, ours is there")
    scene.running.remove(playing)
    playing.cancel()
    await asyncio.gather(playing, return_exceptions=True)


async def test_a_pool_that_is_gone_is_gone_from_redis(scene: Scene) -> None:
    expected = ExpectedPools(scene.redis)
    await expected.put("forgotten", ["m"], owner=f"{scene.namespace}/forgotten")
    await expected.put("elsewhere", ["m"], owner="another-namespace/elsewhere")
    await expected.put("by-hand", ["m"])
    async with scene.operator():
        await scene.make(scaling=MANUAL, replicas=1)
        await scene.serving(1)
        assert set(await expected.read()) == {"pool", "elsewhere", "by-hand"}
        await scene.kube.delete(WORKER_POOLS, scene.key())

        async def gone() -> bool:
            decided = await PastDecisions(scene.redis).read()
            return "pool" not in await expected.read() and not decided

        await scene.until(gone, "neither the pool nor its decisions are kept any more")


async def test_the_process_gives_its_lease_back_and_ends_at_sigterm(
    scene: Scene, tmp_path: Path
) -> None:
    await scene.make(scaling=MANUAL, replicas=1)
    environment = os.environ | {
        "PANDO_OPERATOR_REDIS": scene.redis_url,
        "PANDO_OPERATOR_PORT": "0",
        "PANDO_OPERATOR_HOST": "127.0.0.1",
        "PANDO_OPERATOR_NAMESPACES": scene.namespace,
        "PANDO_OPERATOR_LEASE_NAMESPACE": scene.namespace,
        "PANDO_OPERATOR_KUBECONFIG": str(scene.server.kubeconfig()),
    }
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pando", "operator", env=environment, stdout=log, stderr=log
        )
    try:
        await scene.serving(1)
        lease = Key(scene.namespace, "pando-operator")
        assert (await scene.kube.get(LEASES, lease))["spec"]["holderIdentity"]
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert time.monotonic() - started < END_S
        assert (await scene.kube.get(LEASES, lease))["spec"]["holderIdentity"] == ""
    finally:
        if process.returncode is None:
            process.kill()
    assert "Traceback" not in (tmp_path / "log").read_text()
