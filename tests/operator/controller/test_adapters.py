"""Adapters of a pool against a real API server, a real Redis, and workers' endpoints over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pando_fleet.records.expected import ExpectedPools
from pando_operator.kube.resources import Object
from tests.operator.controller.adapter_workers import AdapterWorkers, adapter_workers, identity
from tests.operator.controller.conftest import FAST, Scene

PIRATE = {"name": "pirate", "source": "org/pirate"}
JSON = {"name": "json", "source": "/adapters/json", "pin": True}


@pytest.fixture
async def workers(scene: Scene) -> AsyncIterator[AdapterWorkers]:
    async with adapter_workers(scene.cluster) as one:
        yield one


async def make(scene: Scene, replicas: int, *adapters: dict[str, Any]) -> None:
    await scene.make(
        scaling={"mode": "Manual", **FAST},
        replicas=replicas,
        engine={"maxLoras": 4},
        adapters=list(adapters),
    )


async def row(scene: Scene, name: str) -> Object:
    rows = (await scene.status()).get("adapters", ())
    found: Object = next((one for one in rows if one["name"] == name), {})
    return found


async def reaches(scene: Scene, name: str, state: str) -> None:
    async def is_so() -> bool:
        return bool(state in (await row(scene, name)).get("state", ""))

    await scene.until(is_so, f"{name} is {state}")


async def loaded(scene: Scene, adapter: dict[str, Any], count: int) -> None:
    """Waits until all of `count` replicas have it from its source."""

    async def is_so() -> bool:
        found = await row(scene, adapter["name"])
        seen = found.get("source"), found.get("state")
        return seen == (adapter["source"], f"Ready {count}/{count}")

    await scene.until(is_so, f"{adapter} is on {count} replicas")


async def gone(scene: Scene, name: str) -> None:
    """Waits until the status does not list it any more."""

    async def is_so() -> bool:
        return not await row(scene, name)

    await scene.until(is_so, f"{name} is gone")


def gate(pod: Object) -> str:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"] == "pando.dev/serving"), "")


async def test_all_replicas_load_all_adapters_and_the_status_shows_it(
    scene: Scene, workers: AdapterWorkers
) -> None:
    async with scene.operator() as running:
        await make(scene, 3, PIRATE, JSON)
        await loaded(scene, PIRATE, 3)
        await loaded(scene, JSON, 3)
        status = await scene.status()
        assert status["adaptersReady"] == "2/2"
        assert (await row(scene, "json"))["identity"] == identity("/adapters/json")
        condition = await scene.condition("AdaptersReady")
        assert (condition["status"], condition["reason"]) == ("True", "AllAdaptersReady")
        assert all(one.adapters["json"].pinned for one in scene.cluster.workers.values())
        assert await ExpectedPools(scene.redis).read() == {"pool": ("m", "pirate", "json")}
        await scene.event("AdaptersReady")
        sample = f'pando_operator_adapters{{namespace="{scene.namespace}",pool="pool",'
        await scene.until(
            lambda: sample in running.operator.metrics.render().decode(), "the metric"
        )  # is set after the status is written
    assert len(workers.calls) == 6


async def test_a_change_of_the_list_replaces_weights_one_by_one_and_no_pod(
    scene: Scene, workers: AdapterWorkers
) -> None:
    async with scene.operator():
        await make(scene, 3, PIRATE)
        await loaded(scene, PIRATE, 3)
        pods = set(scene.cluster.workers)
        workers.most_loading.clear()
        second = PIRATE | {"source": "org/pirate-2"}
        await scene.change(adapters=[second, JSON])
        await loaded(scene, second, 3)
        await loaded(scene, JSON, 3)
        assert set(workers.serving("pirate").values()) == {identity("org/pirate-2")}
        assert workers.most_loading["pirate"] == 1
        assert set(scene.cluster.workers) == pods


async def test_an_adapter_leaves_after_its_requests(scene: Scene, workers: AdapterWorkers) -> None:
    async with scene.operator():
        await make(scene, 2, PIRATE, JSON)
        await loaded(scene, PIRATE, 2)
        workers.idle.clear()
        await scene.change(adapters=[JSON])
        await reaches(scene, "pirate", "Removing, still on 2/2")
        assert (await scene.condition("AdaptersReady"))["reason"] == "InProgress"
        # The pool's loop does not wait for them.
        await scene.change(replicas=3)
        await loaded(scene, JSON, 3)
        workers.idle.set()
        await scene.event("AdapterRemoved")
        assert await row(scene, "pirate") == {}


async def test_the_state_names_the_replica_that_refuses_an_adapter_and_why(
    scene: Scene, workers: AdapterWorkers
) -> None:
    async with scene.operator():
        await make(scene, 2)
        await scene.serving(2)
        full = max(scene.cluster.workers)
        workers.full.add(full)
        await scene.change(adapters=[PIRATE])
        await reaches(scene, "pirate", f"Ready 1/2: {full}: no space left on device")
        assert (await scene.condition("AdaptersReady"))["reason"] == "AdapterFailing"
        assert "no space left" in (await scene.event("AdapterFailing"))["message"]
        assert (await scene.condition("Degraded"))["status"] == "False"


async def test_a_new_replica_is_ready_once_it_has_the_adapters(
    scene: Scene, workers: AdapterWorkers
) -> None:
    async with scene.operator():
        await make(scene, 1, PIRATE)
        await loaded(scene, PIRATE, 1)
        workers.open.clear()
        (old,) = scene.cluster.workers
        await scene.change(replicas=2)
        await scene.until(lambda: workers.loading["pirate"], "the new replica loads")
        (new,) = scene.cluster.workers.keys() - {old}

        async def is_reported() -> bool:
            return bool((await scene.status()).get("startingReplicas") == 1)

        await scene.until(is_reported, "it is starting")
        pods = {pod["metadata"]["name"]: gate(pod) for pod in await scene.cluster.pods()}
        assert pods.pop(new) != "True"
        assert set(pods.values()) == {"True"}
        workers.open.set()
        await scene.serving(2)
        assert new in workers.serving("pirate")


async def test_a_broken_source_delays_no_replica_and_touches_no_weights(
    scene: Scene, workers: AdapterWorkers
) -> None:
    workers.broken.add("org/broken")
    async with scene.operator():
        await make(scene, 2, PIRATE | {"source": "org/broken"})
        await scene.serving(2)
        await reaches(scene, "pirate", "org/broken has no adapter_config.json")
        await scene.change(adapters=[PIRATE])
        await loaded(scene, PIRATE, 2)
        await scene.change(adapters=[PIRATE | {"source": "org/broken"}])
        await reaches(scene, "pirate", "Ready 0/2: ")
        assert set(workers.serving("pirate").values()) == {identity("org/pirate")}


async def test_another_operator_goes_on_in_the_middle(
    scene: Scene, workers: AdapterWorkers
) -> None:
    async with scene.operator():
        await make(scene, 2, PIRATE, JSON)
        await loaded(scene, PIRATE, 2)
        await loaded(scene, JSON, 2)
        workers.idle.clear()
        workers.open.clear()
        second = JSON | {"source": "/adapters/json-2"}
        await scene.change(adapters=[second])
        await reaches(scene, "pirate", "Removing")
        await scene.until(lambda: workers.loading["json"], "one replica loads")
    workers.idle.set()
    workers.open.set()
    async with scene.operator(identity="operator-1"):
        await loaded(scene, second, 2)
        await gone(scene, "pirate")
        assert not workers.serving("pirate")
        assert set(workers.serving("json").values()) == {identity("/adapters/json-2")}
        done = len(workers.calls)
    async with scene.operator(identity="operator-2"):
        await scene.change(replicas=3)
        await loaded(scene, second, 3)
    assert len(workers.calls) == done + 1


async def test_workers_of_an_older_release_get_no_calls_and_the_status_says_so(
    scene: Scene, workers: AdapterWorkers
) -> None:
    workers.slots = 0
    async with scene.operator():
        await make(scene, 1, PIRATE)
        await scene.serving(1)
        await reaches(scene, "pirate", "it takes no adapters: its release has none")
    assert workers.calls == []


async def test_a_replica_that_dies_while_it_loads_stops_nobody(
    scene: Scene, workers: AdapterWorkers
) -> None:
    async with scene.operator():
        await make(scene, 2)
        await scene.serving(2)
        workers.open.clear()
        await scene.change(adapters=[PIRATE])
        await scene.until(lambda: workers.loading["pirate"], "one replica loads")
        ((_, dying, _),) = workers.calls
        await scene.cluster.die(dying)
        await scene.until(
            lambda: {worker for _, worker, _ in workers.calls} != {dying}, "another one loads it"
        )
        workers.open.set()
        await loaded(scene, PIRATE, 2)
        assert dying not in workers.serving("pirate")


async def test_workers_that_cannot_be_reached_are_named(
    scene: Scene, workers: AdapterWorkers
) -> None:
    workers.url = "http://127.0.0.1:9"
    async with scene.operator():
        await make(scene, 1, PIRATE)
        await reaches(scene, "pirate", "it cannot be reached")
