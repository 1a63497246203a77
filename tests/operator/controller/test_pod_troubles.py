"""A pool's status repeats what the scheduler and the kubelet report of a pod that cannot run."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pando_operator.controller.observing.pod_troubles import (
    UNSCHEDULED_S,
    keeps_from_starting,
    pods_trouble,
)
from pando_operator.kube.resources import PODS, Object, key_of
from tests.operator.controller.conftest import FAST, Scene

NOW = 1_800_000_000.0
KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


def container(state: Object, **more: Any) -> Object:
    return {
        "name": "worker",
        "image": "worker:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    } | more


def waiting(reason: str, message: str = "") -> Object:
    return {"waiting": {"reason": reason, "message": message}}


def pod(name: str, *containers: Object, **status: Any) -> Object:
    return {"metadata": {"name": name}, "status": {"containerStatuses": list(containers)} | status}


def unscheduled(name: str, for_s: float) -> Object:
    since = datetime.fromtimestamp(NOW - for_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": since,
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    }
    return pod(name, conditions=[condition])


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        (
            waiting("CreateContainerConfigError", 'secret "pando-redis" not found'),
            "CreateContainerConfigError",
            'pod a: container worker: secret "pando-redis" not found',
        ),
        (
            waiting("ErrImagePull", "rpc error: code = NotFound"),
            "ImagePullBackOff",
            "pod a: the image worker:1 of container worker cannot be pulled",
        ),
        (
            waiting("ImagePullBackOff", 'Back-off pulling image "worker:1"'),
            "ImagePullBackOff",
            "pod a: the image worker:1 of container worker cannot be pulled",
        ),
        (waiting("InvalidImageName"), "InvalidImageName", "InvalidImageName"),
    ],
)
def test_what_keeps_a_container_from_starting_is_reported(
    state: Object, reason: str, words: str
) -> None:
    trouble = pods_trouble([pod("a", container(state))], NOW)
    assert trouble is not None
    assert trouble.reason == reason
    assert words in trouble.message


def test_a_container_that_keeps_ending_is_one_trouble_also_while_it_runs() -> None:
    backing_off = container(waiting("CrashLoopBackOff"), restartCount=1, lastState=KILLED)
    running = container({"running": {}}, restartCount=2, lastState=KILLED)
    troubles = {pods_trouble([pod("a", one)], NOW) for one in (backing_off, running)}
    (trouble,) = troubles
    assert trouble is not None
    assert trouble.reason == "CrashLoopBackOff"
    assert trouble.message == ("pod a: container worker keeps exiting (OOMKilled, exit code 137)")


@pytest.mark.parametrize(
    "state",
    [
        container(waiting("ContainerCreating")),
        container({"running": {}}),  # loads its model, however long
        container({"running": {}}, restartCount=1, lastState=KILLED),
        container({"running": {}}, restartCount=7, lastState=KILLED, ready=True),
    ],
)
def test_a_pod_on_its_way_is_no_trouble(state: Object) -> None:
    assert pods_trouble([pod("a", state)], NOW) is None


def test_a_pod_without_a_node_is_a_trouble_after_a_while() -> None:
    assert pods_trouble([unscheduled("a", UNSCHEDULED_S - 1)], NOW) is None
    trouble = pods_trouble([unscheduled("a", UNSCHEDULED_S)], NOW)
    assert trouble is not None
    assert trouble.reason == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in trouble.message


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_is_no_trouble(phase: str) -> None:
    crashed = container({"terminated": {"exitCode": 1}}, restartCount=5, lastState=KILLED)
    evicted = container(waiting("CrashLoopBackOff"), restartCount=5, lastState=KILLED)
    assert (
        pods_trouble([pod("a", crashed, phase=phase), pod("b", evicted, phase=phase)], NOW) is None
    )


def test_to_wait_for_a_node_is_a_part_of_a_start_and_to_wait_for_an_image_is_not() -> None:
    assert not keeps_from_starting(unscheduled("a", 600))
    assert not keeps_from_starting(pod("a", container({"running": {}})))
    assert keeps_from_starting(pod("a", container(waiting("ErrImagePull"))))


def test_the_most_common_trouble_is_reported_with_its_count() -> None:
    pods = [
        pod("a", container(waiting("CreateContainerError", "no"))),
        unscheduled("b", 60),
        unscheduled("c", 60),
        pod("d", container(waiting("InvalidImageName")))
        | {"metadata": {"name": "d", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ]
    trouble = pods_trouble(pods, NOW)
    assert trouble is not None
    assert trouble.message.startswith("pod b: ")
    assert trouble.message.endswith(" (and 1 more)")


async def test_a_pool_is_degraded_while_its_pods_cannot_run(scene: Scene) -> None:
    scene.cluster.starts_ready = False
    async with scene.operator():
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=1)
        await scene.until(lambda: scene.cluster.workers, "a pod")
        (one,) = await scene.cluster.pods()

        async def set_state(state: Object, **more: Any) -> None:
            body = {"status": {"containerStatuses": [container(state, **more)]}}
            await scene.kube.patch(
                PODS,
                key_of(one),
                body,
                manager="kubelet",
                kind="strategic-merge",
                subresource="status",
            )

        await set_state(waiting("CreateContainerConfigError", 'secret "pando-redis" not found'))

        async def degraded() -> bool:
            return bool((await scene.condition("Degraded"))["status"] == "True")

        await scene.until(degraded, "Degraded")
        condition = await scene.condition("Degraded")
        assert condition["reason"] == "CreateContainerConfigError"
        assert 'secret "pando-redis" not found' in condition["message"]
        event = await scene.event("CreateContainerConfigError")
        assert (event["type"], event["message"]) == ("Warning", condition["message"])

        await set_state({"running": {}})
        next(iter(scene.cluster.workers.values())).ready = True
        await scene.serving(1)
        await scene.until(lambda: scene.events("Recovered"), "the event Recovered")
