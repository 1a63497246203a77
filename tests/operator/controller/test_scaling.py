"""The operator end to end: load grows and shrinks a pool, in steps that interrupt no request."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from pando_fleet.placement.prefix import chunk_keys
from pando_fleet.placement.tree import PrefixTree
from pando_fleet.records.decisions import PastDecisions
from pando_fleet.records.expected import ExpectedPools
from pando_fleet.records.queues import Queues
from pando_operator.kube.resources import (
    DEPLOYMENTS,
    SERVICES,
    WORKER_POOLS,
    Object,
    disruption_budgets,
)
from pando_router.fleet_view.snapshot import GRACE_S
from tests.operator.controller.conftest import FAST, Scene, draining
from tests.operator.front import Fault, Front

BEHAVIOR: dict[str, Any] = {"behavior": FAST["behavior"]}


async def test_a_new_pool_gets_its_deployment_service_and_least_replicas(scene: Scene) -> None:
    async with scene.operator():
        pool = await scene.make()
        await scene.serving(1)
    deployment = await scene.kube.get(DEPLOYMENTS, scene.key())
    (owner,) = deployment["metadata"]["ownerReferences"]
    assert owner["uid"] == pool["metadata"]["uid"]
    assert (await scene.kube.get(SERVICES, scene.key()))["spec"]["clusterIP"] == "None"
    assert scene.cluster.replicas_seen == [1]
    assert await ExpectedPools(scene.redis).read() == {"pool": ("m",)}
    assert (await scene.condition("Ready"))["status"] == "True"
    assert (await scene.condition("Degraded"))["status"] == "False"
    assert (await scene.status())["observedGeneration"] == 1


async def test_the_pools_disruption_budget_follows_its_spec_and_is_set_back(scene: Scene) -> None:
    budgets = disruption_budgets(await scene.kube.minor())

    async def allows() -> int | None:
        found, _ = await scene.kube.list(budgets, scene.namespace)
        return next((one["spec"].get("maxUnavailable") for one in found), None)

    def is_now(count: int) -> Callable[[], Awaitable[bool]]:
        async def is_so() -> bool:
            return await allows() == count

        return is_so

    async with scene.operator():
        pool = await scene.make(maxUnavailable=2, scaling={"mode": "Manual", **FAST}, replicas=2)
        await scene.serving(2)
        budget = await scene.kube.get(budgets, scene.key())
        assert await allows() == 2
        assert budget["metadata"]["ownerReferences"][0]["uid"] == pool["metadata"]["uid"]
        replica, _ = await scene.cluster.pods()
        wanted = budget["spec"]["selector"]["matchLabels"].items()
        assert wanted <= replica["metadata"]["labels"].items()
        await scene.change(maxUnavailable=1)
        await scene.until(is_now(1), "it follows the spec")
        theirs = {"spec": {"maxUnavailable": 7}}
        await scene.kube.patch(budgets, scene.key(), theirs, manager="somebody")
        await scene.until(is_now(1), "it is set back")


async def test_load_above_the_target_adds_replicas_and_says_why(scene: Scene) -> None:
    async with scene.operator():
        await scene.make()
        await scene.serving(1)
        scene.cluster.busy(9_000, running=9)
        await scene.until(lambda: len(scene.cluster.workers) >= 2, "a second replica")

        async def decided() -> bool:
            decisions = (await scene.status()).get("decisions", [{}])
            return any(one.get("toReplicas") == 2 for one in decisions)

        await scene.until(decided, "the decision is in the status")
        decision = next(
            one for one in (await scene.status())["decisions"] if one["toReplicas"] == 2
        )
        assert decision["fromReplicas"] == 1
        assert "pressure" in decision["reason"].lower()

        async def said() -> bool:
            messages = [event["message"] for event in await scene.events("ScaledUp")]
            return f"from 1 to 2: {decision['reason']}" in messages

        await scene.until(said, "it is said")
        past = (await PastDecisions(scene.redis).read())["pool"]
        assert (1, 2) in [(one.before, one.after) for one in past]


async def test_a_replica_that_leaves_is_marked_in_redis_before_anything_else(
    scene: Scene, front: Front
) -> None:
    """The least valuable one leaves: the one whose cache holds nothing that others lack."""
    steps: list[tuple[str, bool]] = []  # a write to the API server, and whether the mark was there
    with_marks = scene.sync_redis()

    def spy(request: web.Request) -> bool:
        what = request.path.rpartition("/namespaces/")[2].partition("/")[2]
        if request.method == "PATCH" and what.startswith(("pods", "deployments")):
            steps.append((what, bool(with_marks.hlen("pando:{pool}:marks"))))
        return False

    kubeconfig = str(scene.server.kubeconfig(server=front.url))
    async with scene.operator(kubeconfig=kubeconfig):
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=2)
        await scene.serving(2)
        keep, leave = sorted(scene.cluster.workers.values(), key=lambda one: one.pod)
        tree = PrefixTree(scene.redis, "pool")
        await tree.touch(
            keep.pod, keep.incarnation, chunk_keys(b"x" * 5_000, 0), capacity_chunks=100
        )
        leave.running = 1
        front.faults.append(Fault(spy))

        await scene.change(replicas=1)
        await scene.until(lambda: steps, "the first step")
        assert steps[0] == (f"pods/{leave.pod}", True)

        async def draining() -> bool:
            return bool((await scene.status()).get("drainingReplicas") == 1)

        await scene.until(draining, "the status reports it")
        assert (await scene.status())["readyReplicas"] == 1
        assert not [what for what, _ in steps if "status" in what or "deployments" in what]
        leave.running = 0
        await scene.serving(1)
        assert (await scene.event("Draining"))["message"].startswith(leave.pod)
        event = await scene.event("ScaledDown")
        assert event["message"] == "from 2 to 1: spec.replicas is 1"

    assert list(scene.cluster.workers) == [keep.pod]
    assert all(marked for _, marked in steps)
    order = [what for what, _ in steps]
    gate, last = order.index(f"pods/{leave.pod}/status"), order.index("deployments/pool")
    assert order.index(f"pods/{leave.pod}") < gate < last
    assert scene.cluster.replicas_seen == [2, 1]


async def test_in_manual_mode_replicas_follow_the_scale_subresource(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=1)
        await scene.serving(1)
        scene.cluster.busy(9_900, running=50)
        path = WORKER_POOLS.path(scene.namespace, "pool", "scale")
        scale: Object = scene.server.call("GET", path)
        assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (1, 1)
        assert "pando.dev/pool=pool" in scale["status"]["selector"]
        scale["spec"]["replicas"] = 3
        scene.server.call("PUT", path, scale)
        await scene.serving(3)
    active = await scene.condition("ScalingActive")
    assert (active["status"], active["reason"]) == ("False", "ManualMode")
    assert scene.cluster.replicas_seen == [1, 3]


async def test_in_recommend_mode_only_the_status_changes(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling={"mode": "Recommend", **FAST}, replicas=1)
        await scene.serving(1)
        scene.cluster.busy(9_900, running=50)

        async def recommended() -> bool:
            return bool((await scene.status()).get("recommended", 0) >= 2)

        await scene.until(recommended, "more are recommended")
    assert scene.cluster.replicas_seen == [1]
    assert (await scene.status())["desired"] == 1


async def test_shadow_policies_are_reported_and_do_nothing(scene: Scene) -> None:
    eager = {"name": "eager", "maxReplicas": 9, "target": {"pressure": 0.1}, **BEHAVIOR}
    async with scene.operator():
        await scene.make(scaling={"mode": "Auto", **FAST, "shadowPolicies": [eager]})
        await scene.serving(1)
        scene.cluster.busy(5_000, running=5)

        async def shadow_wants_more() -> bool:
            shadows = (await scene.status()).get("shadows", ())
            return any(one["name"] == "eager" and one["desired"] >= 3 for one in shadows)

        await scene.until(shadow_wants_more, "the shadow wants more")
    assert scene.cluster.replicas_seen == [1]


async def test_a_sleeping_pool_wakes_by_a_waiting_request(scene: Scene) -> None:
    sleepy = FAST | {"minReplicas": 0, "idleSeconds": 1}
    async with scene.operator():
        await scene.make(scaling={"mode": "Auto", **sleepy})

        async def asleep() -> bool:
            return bool((await scene.condition("Ready")).get("reason") == "ScaledToZero")

        await scene.until(asleep, "no replica is there")
        assert await ExpectedPools(scene.redis).read() == {"pool": ("m",)}
        started = time.monotonic()
        await Queues(scene.redis).report("pool", "router", 1, 100, 0)
        await scene.until(lambda: scene.cluster.workers, "a replica for the request")
        assert time.monotonic() - started < 5
        scene.cluster.busy(100, running=1)
        await scene.serving(1)


async def test_routers_know_a_sleeping_pool_soon_after_redis_lost_its_data(scene: Scene) -> None:
    sleepy = FAST | {"minReplicas": 0, "idleSeconds": 1}
    async with scene.operator():
        await scene.make(scaling={"mode": "Auto", **sleepy})

        async def asleep() -> bool:
            return bool((await scene.condition("Ready")).get("reason") == "ScaledToZero")

        async def known() -> bool:
            return await ExpectedPools(scene.redis).read() == {"pool": ("m",)}

        await scene.until(asleep, "no replica is there")
        await scene.redis.flushall()
        await scene.until(known, "its row is there again", GRACE_S)


async def test_nobody_is_chosen_to_leave_while_worths_cannot_be_read(scene: Scene) -> None:
    # A counter begins anew when another leads, so keep this one leading.
    async with scene.operator(lease_duration=90.0, lease_renew=60.0) as running:
        looks = running.operator.metrics.reconciles.labels(scene.namespace, "pool", "ok")
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=3)
        await scene.serving(3)
        scene.cluster.busy(100, running=1)
        *others, last = sorted(scene.cluster.workers)
        trees = {
            pod: f"pando:{{pool}}:tree:{worker.incarnation}:{pod}"
            for pod, worker in scene.cluster.workers.items()
        }
        await scene.redis.set(trees[last], "what no tree is")
        await scene.change(replicas=2)
        await scene.until(lambda: any("WRONGTYPE" in one for one in scene.said), "it is said")
        count = looks._value.get()
        await scene.until(lambda: looks._value.get() >= count + 2, "it looks again")
        assert await draining(scene) == []
        tree = PrefixTree(scene.redis, "pool")
        for pod in others:
            incarnation, text = scene.cluster.workers[pod].incarnation, pod.encode() * 500
            await tree.touch(pod, incarnation, chunk_keys(text, 0), capacity_chunks=99)
        await scene.redis.delete(trees[last])
        await scene.until(lambda: draining(scene), "one leaves")
        assert await draining(scene) == [last]

        scene.said.clear()  # a replica that is already leaving needs no choice
        await scene.redis.set(trees[others[0]], "what no tree is")
        scene.cluster.workers[last].running = 0
        await scene.serving(2)
        assert set(scene.cluster.workers) == set(others)
        assert not any("WRONGTYPE" in one for one in scene.said)


async def test_gauges_of_what_a_pool_no_longer_has_are_gone(scene: Scene) -> None:
    eager = {"name": "eager", "maxReplicas": 9}
    # An operator that stops leading drops all gauges, so keep this one leading.
    async with scene.operator(lease_duration=90.0, lease_renew=60.0) as running:

        def metrics() -> str:
            return running.operator.metrics.render().decode()

        await scene.make(scaling={"mode": "Recommend", **FAST, "shadowPolicies": [eager]})
        await scene.until(lambda: "shadow_replicas{" in metrics(), "the shadow's number")
        assert "recommended_replicas{" in metrics()
        await scene.change(scaling={"mode": "Manual", "shadowPolicies": []})
        await scene.until(lambda: "shadow_replicas{" not in metrics(), "it is gone")
        assert "recommended_replicas{" not in metrics()


async def test_a_first_start_is_no_warning(scene: Scene) -> None:
    scene.cluster.starts_ready = False
    async with scene.operator():
        await scene.make()

        async def told() -> bool:
            return (await scene.condition("ScalingActive")).get("reason") == "NoReplicaReady"

        await scene.until(told, "no replica reports a load")
        for worker in scene.cluster.workers.values():
            worker.ready = True
        await scene.serving(1)

        async def active() -> bool:
            return bool((await scene.condition("ScalingActive"))["reason"] == "ValidSignals")

        await scene.until(active, "it scales by load")
    assert await scene.events("SignalsMissing") == []
    assert await scene.events("SignalsBack") == []


async def test_what_others_do_to_the_deployment_is_undone(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=1)
        await scene.serving(1)
        wrong = {"spec": {"replicas": 3, "minReadySeconds": 7, "revisionHistoryLimit": 9}}
        await scene.kube.patch(DEPLOYMENTS, scene.key(), wrong, manager="somebody")

        async def undone() -> bool:
            spec = (await scene.kube.get(DEPLOYMENTS, scene.key()))["spec"]
            return bool(spec["replicas"] == 1 and spec["revisionHistoryLimit"] == 3)

        await scene.until(undone, "the operator's fields are as they were")
        await scene.serving(1)


async def test_an_upgrade_of_the_template_leaves_replicas_alone(scene: Scene) -> None:
    async with scene.operator():
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=2)
        await scene.serving(2)
        await scene.change(template={"image": "worker:2"})

        async def applied() -> bool:
            spec = (await scene.kube.get(DEPLOYMENTS, scene.key()))["spec"]
            return bool(spec["template"]["spec"]["containers"][0]["image"] == "worker:2")

        await scene.until(applied, "the new image")
    assert scene.cluster.replicas_seen == [2]
