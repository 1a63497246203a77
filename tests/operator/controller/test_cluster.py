"""The simulated cluster acts on the state that it observes, like real controllers, when busy."""

from aiohttp import web

from pando_operator.kube.client import Kube
from tests.operator.controller.conftest import FAST, Scene
from tests.operator.front import Fault, Front


async def test_a_pod_whose_creation_was_not_answered_gets_its_worker(
    scene: Scene, front: Front, fronted: Kube
) -> None:
    def creates_a_pod(request: web.Request) -> bool:
        return request.method == "POST" and request.path.endswith("/pods")

    front.faults.append(lost := Fault(creates_a_pod, is_lost=True, times=1))
    scene.cluster.kube = fronted
    async with scene.operator():
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=2)
        await scene.serving(2)
    assert lost.hits == 1
    assert len(scene.cluster.workers) == 2
